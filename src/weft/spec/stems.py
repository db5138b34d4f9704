"""Convolutional stems, which replace the linear patch embedding of an image."""

from typing import Literal, NamedTuple

from ..support.console import count_of
from ..support.registry import choice, implements, resolve
from ..support.value_tree import format_inline
from ..support.values import PositiveInt
from .norms import GroupNorm
from .parts import Shapes, measured_shapes

ResNetStemType = Literal["7x7", "3x3"]


class StemShape(NamedTuple):
    """The first layers of a ResNet: a convolution and pooling."""

    kernel_size: int
    stride: int
    pool_stride: int  # 1: no pooling


# 7x7 for photographs, 3x3 for images of 32 pixels (He et al. 2015, arXiv:1512.03385, table 1 and
# section 4.2)
RESNET_STEMS: dict[ResNetStemType, StemShape] = {
    "7x7": StemShape(7, 2, 2),
    "3x3": StemShape(3, 1, 1),
}


def resnet_stride(stem_type: ResNetStemType, stages: int) -> int:
    """Return the pixels per cell of the last feature map, along each side."""
    stem = RESNET_STEMS[stem_type]
    return stem.stride * stem.pool_stride << max(0, stages - 1)


class PatchStem:
    """Base of maps from an image to a grid of vectors, one per `Patches.patch_size` pixels.

    Its implementation is a layer built with (stem, channels, width). It is called with images (B,
    C, R, S) and returns (B, D, R / stride, S / stride).
    """

    @property
    def stride(self) -> int:
        """Pixels per cell, along each side."""
        raise NotImplementedError

    def shapes(self, channels: int, width: int) -> Shapes:
        """Yield name and shape of every parameter."""
        return measured_shapes(self, channels, width)

    def flops(self, channels: int, width: int, side: int) -> int:
        """Return the FLOPs of one square image of `side` pixels."""
        counted: int = resolve("weft.nn.layers.measure:image_flops")(self, channels, width, side)
        return counted

    def describe(self) -> str:
        """Return the stem in a few words."""
        return format_inline(self)


@choice
class ConvStem(PatchStem):
    """Convolution, ReLU and max pooling of stride 2, repeated (Compact Transformers, Hassani et al.
    2021, arXiv:2104.05704, section 3.3).

    Args:
        widths: the channels of all layers but the last, which has the model width (default: (64,)).
        kernel_size: the side of the kernels (default: 3).
    """

    widths: tuple[PositiveInt, ...] = (64,)
    kernel_size: PositiveInt = 3

    @property
    def stride(self) -> int:
        pixels: int = (2 * self.convolution_stride) ** (len(self.widths) + 1)
        return pixels

    @property
    def convolution_stride(self) -> int:
        """The stride of each convolution: 1 for kernels of 3 and 5, 2 for 7, as in the authors'
        models.
        """
        return max(1, self.kernel_size // 2 - 1)

    def shapes(self, channels: int, width: int) -> Shapes:
        inputs = (channels, *self.widths)
        for i, (before, after) in enumerate(zip(inputs, (*self.widths, width), strict=True)):
            yield f"{i}.weight", (after, before, self.kernel_size, self.kernel_size)

    def flops(self, channels: int, width: int, side: int) -> int:
        total = 0
        for _, (outputs, inputs, kernel, _) in self.shapes(channels, width):
            side = -(-side // self.convolution_stride)
            total += 2 * side * side * outputs * inputs * kernel * kernel
            side = -(-side // 2)
        return total

    def describe(self) -> str:
        layers = len(self.widths) + 1
        return f"{count_of(layers, 'convolution')} of {self.kernel_size} × {self.kernel_size}"


@choice
class ResNetStem(PatchStem):
    """A ResNet whose last feature map is projected to the model width: the hybrid of Dosovitskiy et
    al. 2020 (arXiv:2010.11929, section 3.1), whose R50 keeps three stages and moves the blocks of
    the fourth into the third. Group norm allows training from scratch.

    Args:
        depths: the number of residual blocks per stage (default: (3, 4, 9)).
        widths: the channels per stage (default: (256, 512, 1024)).
        stem_width: the channels of the first convolution (default: 64).
        stem_type: the first convolution: "7x7" has stride 2 and is followed by pooling, for
            photographs; "3x3" has stride 1 and no pooling, for images of 32 pixels (He et al. 2015,
            arXiv:1512.03385, section 4.2). Default: "7x7".
        block: "bottleneck", or "basic" with two 3×3 convolutions (default: "bottleneck").
        norm: the norm of the feature maps (default: `GroupNorm()`).
    """

    depths: tuple[PositiveInt, ...] = (3, 4, 9)
    widths: tuple[PositiveInt, ...] = (256, 512, 1024)
    stem_width: PositiveInt = 64
    stem_type: ResNetStemType = "7x7"
    block: Literal["bottleneck", "basic"] = "bottleneck"
    norm: GroupNorm = GroupNorm()

    @property
    def stride(self) -> int:
        return resnet_stride(self.stem_type, len(self.depths))

    def describe(self) -> str:
        first = self.stem_type.replace("x", " × ")
        return (
            f"a ResNet of {sum(self.depths)} blocks in {len(self.depths)} stages after a "
            f"convolution of {first}"
        )


implements(ResNetStem, "weft.nn.layers.images.stems:ResNetStemLayer")
implements(ConvStem, "weft.nn.layers.images.stems:ConvStemLayer")
