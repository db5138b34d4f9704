"""Optimisers and their hyper-parameters."""

from typing import ClassVar

from ..spec import PositiveFloat, PositiveFraction, Probability
from ..support.registry import choice, implements

Betas = tuple[Probability, Probability]


class OptimiserSpec:
    """Base of optimisers; `lr` is the peak learning rate, which the schedule scales.

    Its implementation is built with (optimiser, parameters), a
    `weft.training.optimisers.optimiser.TrainedParameters`, and returns torch optimisers whose
    groups hold each parameter once. Their state is tensors, saved under the names of the
    parameters.
    """

    lr: float
    states_per_parameter: ClassVar[float] = 2.0  # values in memory, for `weft show`
    can_shard: ClassVar[bool] = True  # whether it supports parameters sharded over ranks


@choice
class AdamW(OptimiserSpec):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2017, arXiv:1711.05101); norms and
    biases do not decay.

    Args:
        lr: the peak learning rate.
        betas: the decay rates of both moments (default: (0.9, 0.999)).
        eps: added to the denominator (default: 1e-8).
        weight_decay: the weight decay (default: 0.01).
        layer_decay: the learning rate of a block as a fraction of the next block's
            (arXiv:1801.06146, section 3.2; default: the same rate).
    """

    lr: PositiveFloat
    betas: Betas = (0.9, 0.999)
    eps: PositiveFloat = 1e-8
    weight_decay: Probability = 0.01
    layer_decay: PositiveFraction | None = None


@choice
class Adam(OptimiserSpec):
    """Adam with the betas of the original Transformer (section 5.3).

    Args:
        lr: the peak learning rate.
        betas: the decay rates of both moments (default: (0.9, 0.98)).
        eps: added to the denominator (default: 1e-9).
    """

    lr: PositiveFloat
    betas: Betas = (0.9, 0.98)
    eps: PositiveFloat = 1e-9


@choice
class Adafactor(OptimiserSpec):
    """Adam with factored second moments (Shazeer and Stern 2018, arXiv:1804.04235).

    Args:
        lr: the peak learning rate.
        weight_decay: the weight decay (default: 0).
    """

    states_per_parameter = 0.1  # a row and a column of each matrix
    can_shard = False  # PyTorch's implementation sums rows in place, which DTensor does not support

    lr: PositiveFloat
    weight_decay: Probability = 0.0


@choice
class SGD(OptimiserSpec):
    """Stochastic gradient descent with momentum: v <- momentum · v + gradient, w <- w - lr · v.

    Args:
        lr: the peak learning rate.
        momentum: the momentum (default: 0.9).
        weight_decay: the weight decay (default: 0).
    """

    states_per_parameter = 1.0  # the momentum
    lr: PositiveFloat
    momentum: Probability = 0.9
    weight_decay: Probability = 0.0


@choice
class Muon(OptimiserSpec):
    """Orthogonalised momentum for the matrices of blocks and for convolutions (Jordan et al. 2024),
    at AdamW's scale (Liu et al. 2025, arXiv:2502.16982).

    Every step has the same size, even if the gradient is noise. Fine-tuning needs a learning rate
    near AdamW's; otherwise the matrices outgrow their initialisation (docs/log.md).

    Args:
        lr: the peak learning rate of the matrices.
        other: the optimiser of all other parameters.
        momentum: the momentum (default: 0.95).
        weight_decay: the weight decay (default: 0).
    """

    lr: PositiveFloat
    other: AdamW
    momentum: Probability = 0.95
    weight_decay: Probability = 0.0

    def __post_init__(self) -> None:
        if self.other.layer_decay is not None:
            raise ValueError(
                f"Muon.other.layer_decay = {self.other.layer_decay}: Muon uses one learning rate "
                "for all blocks; use layer_decay=None, or AdamW as the optimiser"
            )


implements(AdamW, "weft.training.optimisers.optimiser:build_adamw")
implements(Adam, "weft.training.optimisers.optimiser:build_adam")
implements(Adafactor, "weft.training.optimisers.optimiser:build_adafactor")
implements(SGD, "weft.training.optimisers.optimiser:build_sgd")
implements(Muon, "weft.training.optimisers.optimiser:build_muon")
