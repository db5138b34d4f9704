"""Normalisations."""

from ..support.registry import choice, implements
from ..support.values import PositiveFloat, PositiveInt
from .parts import Shapes, measured_flops, measured_shapes, with_prefix


class Norm:
    """Base of every normalisation of a vector per token. Built with (norm, width)."""

    def shapes(self, width: int) -> Shapes:
        """Yield name and shape of every parameter."""
        return measured_shapes(self, width)

    def flops(self, width: int, tokens: int) -> int:
        """Return the FLOPs of matrix products for `tokens` vectors."""
        return measured_flops(self, width, tokens)


@choice
class LayerNorm(Norm):
    """(x - mean) / standard deviation (Ba et al. 2016, arXiv:1607.06450)."""

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
    """x / root mean square (Zhang and Sennrich 2019, arXiv:1910.07467)."""

    eps: PositiveFloat = 1e-6

    def shapes(self, width: int) -> Shapes:
        yield "weight", (width,)

    def flops(self, width: int, tokens: int) -> int:
        return 0


# Of the feature maps of a convolutional network


@choice
class FrozenBatchNorm:
    """Batch norm with the statistics and the affine map of a pre-trained network, all fixed (DETR,
    section 4).
    """


@choice
class GroupNorm:
    """Norm over groups of channels of one image, trained (Wu and He 2018, arXiv:1803.08494): unlike
    batch norm it is the same for any batch, so that micro-batches and ranks do not matter.
    """

    groups: PositiveInt = 8


def norm_shapes(name: str, norm: Norm | None, width: int) -> Shapes:
    if norm is not None:
        yield from with_prefix(name, norm.shapes(width))


def norm_flops(norm: Norm | None, width: int, tokens: int) -> int:
    return 0 if norm is None else norm.flops(width, tokens)


implements(LayerNorm, "weft.nn.layers.norms:build_layer_norm")
implements(RMSNorm, "weft.nn.layers.norms:build_rms_norm")
