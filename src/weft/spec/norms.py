"""Normalisation layers."""

from ..support.registry import choice, implements
from ..support.values import PositiveFloat, PositiveInt
from .parts import Shapes, measured_flops, measured_shapes, with_prefix


class Norm:
    """Base of normalisations of one vector per token. Its implementation is built with (norm,
    width).
    """

    def shapes(self, width: int) -> Shapes:
        """Yield name and shape of every parameter."""
        return measured_shapes(self, width)

    def flops(self, width: int, tokens: int) -> int:
        """Return the FLOPs of matrix products for `tokens` vectors."""
        return measured_flops(self, width, tokens)


@choice
class LayerNorm(Norm):
    """(x - mean) / standard deviation (Ba et al. 2016, arXiv:1607.06450).

    Args:
        eps: added to the variance (default: 1e-5).
        bias: whether there is a trained bias (default: True).
    """

    eps: PositiveFloat = 1e-5
    bias: bool = True

    def shapes(self, width: int) -> Shapes:
        yield "weight", (width,)
        if self.bias:
            yield "bias", (width,)

    def flops(self, width: int, tokens: int) -> int:
        return 0


@choice
class RMSNorm(Norm):
    """x / root mean square (Zhang and Sennrich 2019, arXiv:1910.07467).

    Args:
        eps: added to the mean square (default: 1e-6).
    """

    eps: PositiveFloat = 1e-6

    def shapes(self, width: int) -> Shapes:
        yield "weight", (width,)

    def flops(self, width: int, tokens: int) -> int:
        return 0


# Norms of convolutional feature maps


@choice
class FrozenBatchNorm:
    """Batch norm with fixed statistics, weight and bias from a pre-trained network (DETR, section
    4).
    """


@choice
class GroupNorm:
    """Norm over groups of channels of one image, trained (Wu and He 2018, arXiv:1803.08494). It
    does not depend on the batch, so micro-batches and ranks do not change it.

    Args:
        groups: the number of groups; it divides every channel count (default: 8).
    """

    groups: PositiveInt = 8


def norm_shapes(name: str, norm: Norm | None, width: int) -> Shapes:
    if norm is not None:
        yield from with_prefix(name, norm.shapes(width))


def norm_flops(norm: Norm | None, width: int, tokens: int) -> int:
    return 0 if norm is None else norm.flops(width, tokens)


implements(LayerNorm, "weft.nn.layers.norms:build_layer_norm")
implements(RMSNorm, "weft.nn.layers.norms:build_rms_norm")
