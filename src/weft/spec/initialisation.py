"""How weights are initialised."""

from ..support.registry import choice, implements
from ..support.values import PositiveFloat


class Init:
    """Base of every rule for initial weights. Implemented by the two functions of `InitRule`."""


@choice
class NormalInit(Init):
    """Normal weights, truncated at `truncate_at` standard deviations; with `scale_by_depth`, maps
    that join the residual are scaled by 1/√(2·depth) (GPT-2).
    """

    std: PositiveFloat = 0.02
    truncate_at: PositiveFloat | None = None
    scale_by_depth: bool = False


@choice
class XavierInit(Init):
    """Uniform weights by fan-in and fan-out (Glorot and Bengio 2010); embeddings are normal with
    width ** -0.5.
    """


@choice
class T5Init(Init):
    """Each map by its fan-in, with unscaled attention scores (Raffel et al. 2020)."""

    factor: PositiveFloat = 1.0


@choice
class FanInInit(Init):
    """Each map normal with variance 1 / fan-in, embeddings with variance 1 (Chowdhery et al. 2022,
    arXiv:2204.02311, section 5).
    """


implements(NormalInit, "weft.nn.initialisation:NormalRule")
implements(XavierInit, "weft.nn.initialisation:XavierRule")
implements(T5Init, "weft.nn.initialisation:T5Rule")
implements(FanInInit, "weft.nn.initialisation:FanInRule")
