"""Distributions of initial weights."""

from ..support.registry import choice, implements
from ..support.values import PositiveFloat


class Init:
    """Base of initialisations. Its implementation subclasses `weft.nn.initialisation.InitRule`."""


@choice
class NormalInit(Init):
    """Normal weights.

    Args:
        std: the standard deviation (default: 0.02).
        truncate_at: truncation in standard deviations (default: none).
        scale_by_depth: whether maps into the residual are scaled by 1/√(2·depth), as in GPT-2
            (default: False).
    """

    std: PositiveFloat = 0.02
    truncate_at: PositiveFloat | None = None
    scale_by_depth: bool = False


@choice
class XavierInit(Init):
    """Uniform weights by fan-in and fan-out (Glorot and Bengio 2010); embeddings are normal with
    standard deviation width ** -0.5.
    """


@choice
class T5Init(Init):
    """Normal weights by fan-in, for unscaled attention scores (Raffel et al. 2020).

    Args:
        factor: the factor of all standard deviations (default: 1).
    """

    factor: PositiveFloat = 1.0


@choice
class FanInInit(Init):
    """Normal weights with variance 1 / fan-in, embeddings with variance 1 (Chowdhery et al. 2022,
    arXiv:2204.02311, section 5).
    """


implements(NormalInit, "weft.nn.initialisation:NormalRule")
implements(XavierInit, "weft.nn.initialisation:XavierRule")
implements(T5Init, "weft.nn.initialisation:T5Rule")
implements(FanInInit, "weft.nn.initialisation:FanInRule")
