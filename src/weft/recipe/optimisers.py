"""Optimisers and their hyper-parameters."""

from typing import ClassVar

from ..spec import PositiveFloat, PositiveFraction, Probability
from ..support.registry import choice, implements

Betas = tuple[Probability, Probability]


class OptimiserSpec:
    """Base of every optimiser; `lr` is the peak learning rate, which the schedule scales.

    Built with (optimiser, parameters), a `weft.training.optimisers.optimiser.TrainedParameters`,
    into torch optimisers whose groups hold each parameter once. Their state is tensors, stored
    under the names of the parameters.
    """

    lr: float
    states_per_parameter: ClassVar[float] = 2.0  # numbers in memory, for `weft show`
    can_shard: ClassVar[bool] = (
        True  # whether it works on parameters whose parts are on several ranks
    )


@choice
class AdamW(OptimiserSpec):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2017, arXiv:1711.05101); norms and
    biases do not decay.
    """

    lr: PositiveFloat
    betas: Betas = (0.9, 0.999)
    eps: PositiveFloat = 1e-8
    weight_decay: Probability = 0.01
    layer_decay: PositiveFraction | None = (
        # each block learns at this share of the next one's rate (arXiv:1801.06146, section 3.2)
        None
    )


@choice
class Adam(OptimiserSpec):
    """Adam with the betas of the original Transformer, section 5.3."""

    lr: PositiveFloat
    betas: Betas = (0.9, 0.98)
    eps: PositiveFloat = 1e-9


@choice
class Adafactor(OptimiserSpec):
    """Adam with factored second moments (Shazeer and Stern 2018, arXiv:1804.04235)."""

    states_per_parameter = 0.1  # a row and a column of each matrix
    can_shard = False  # PyTorch's takes sums of rows in place, which DTensor refuses

    lr: PositiveFloat
    weight_decay: Probability = 0.0


@choice
class SGD(OptimiserSpec):
    """Stochastic gradient descent with momentum: v <- momentum · v + gradient, w <- w - lr · v."""

    states_per_parameter = 1.0  # the momentum
    lr: PositiveFloat
    momentum: Probability = 0.9
    weight_decay: Probability = 0.0


@choice
class Muon(OptimiserSpec):
    """Orthogonalised momentum for the matrices of blocks and for convolutions (Jordan et al. 2024),
    at AdamW's scale (Liu et al. 2025, arXiv:2502.16982); AdamW with `other` for all other
    parameters. Every step has the same size, even if the gradient is noise: a model that will be
    fine-tuned needs a learning rate near AdamW's, or its matrices outgrow their initialisation
    (docs/log.md).
    """

    lr: PositiveFloat
    other: AdamW
    momentum: Probability = 0.95
    weight_decay: Probability = 0.0

    def __post_init__(self) -> None:
        if self.other.layer_decay is not None:
            raise ValueError(
                f"Muon.other.layer_decay = {self.other.layer_decay}: Muon has one learning rate "
                "for all blocks; use AdamW for layer_decay"
            )


implements(AdamW, "weft.training.optimisers.optimiser:build_adamw")
implements(Adam, "weft.training.optimisers.optimiser:build_adam")
implements(Adafactor, "weft.training.optimisers.optimiser:build_adafactor")
implements(SGD, "weft.training.optimisers.optimiser:build_sgd")
implements(Muon, "weft.training.optimisers.optimiser:build_muon")
