"""What a model reads: tokens, patches, features of a convolutional network, object queries."""

from typing import Literal

from ..support.registry import choice
from ..support.values import FiniteFloat, PositiveInt, Probability
from .norms import FrozenBatchNorm, GroupNorm, Norm
from .parts import Shapes, linear_flops, linear_shapes
from .positions import InputPositions, LearnedPositions, LearnedPositions2D, SinusoidalPositions2D
from .stems import PatchStem, ResNetStemType, resnet_stride

# `Spec.source` and `Spec.target` are closed unions: what a model reads decides how data, batches
# and `Model.embed` are made, so that a further source is a modality and not a part. So are the
# positions of a grid of cells (`positions` of Patches and ResNet): their embedding resizes them to
# other image sizes and drops cells by kind. Positions of tokens are open.


@choice
class Tokens:
    """Rows of a table, plus positions, plus segments."""

    vocab_size: PositiveInt
    embedding_dim: PositiveInt | None = None  # narrower than the model: projected up (ELECTRA)
    positions: InputPositions | None = None
    token_types: PositiveInt | None = None
    embedding_scale: FiniteFloat = 1.0  # on the rows (2017: the root of the width)
    norm: Norm | None = None
    dropout: Probability = 0.0


@choice
class SharedTokens:
    """The decoder reads the source's table, with positions and norm of its own."""

    positions: InputPositions | None = None
    embedding_scale: FiniteFloat = 1.0
    norm: Norm | None = None
    dropout: Probability = 0.0


@choice
class Patches:
    """Square patches, one linear map, extra tokens in front (Dosovitskiy et al. 2020,
    arXiv:2010.11929).

    A `stem` makes the vectors of the patches by convolutions, in place of the linear map."""

    image_size: PositiveInt
    patch_size: PositiveInt
    channels: PositiveInt = 3
    extra_tokens: tuple[Literal["class", "distillation"], ...] = ("class",)
    positions: LearnedPositions | LearnedPositions2D | SinusoidalPositions2D | None = None
    stem: PatchStem | None = None
    norm: Norm | None = None
    dropout: Probability = 0.0


@choice
class ResNet:
    """A ResNet, projected to the model's width; positions at every attention (DETR, G6).

    `padding`: of a smaller image in a batch. "zeros": only attention does not see it, as published
    models do; "masked": nor do convolutions, so that features do not depend on the batch.
    `stem_type`: the first convolution, as in `ResNetStem`.
    """

    depths: tuple[PositiveInt, ...] = (3, 4, 6, 3)
    widths: tuple[PositiveInt, ...] = (256, 512, 1024, 2048)
    stem_width: PositiveInt = 64
    stem_type: ResNetStemType = "7x7"
    channels: PositiveInt = 3
    block: Literal["bottleneck", "basic"] = "bottleneck"  # basic: two 3×3 (ResNet-18)
    norm: FrozenBatchNorm | GroupNorm = FrozenBatchNorm()
    padding: Literal["zeros", "masked"] = "zeros"
    positions: SinusoidalPositions2D | LearnedPositions2D | None = SinusoidalPositions2D(
        scale="unit"
    )
    positions_at: Literal["attention", "encoder-attention", "decoder-attention", "input"] = (
        "attention"  # of both stacks (DETR, section 4.2 and table 3)
    )

    @property
    def stride(self) -> int:
        """Pixels per cell, along each side."""
        return resnet_stride(self.stem_type, len(self.depths))


@choice
class ObjectQueries:
    """A decoder input that is learned, not read: one vector an object, at every attention or once
    at the input (DETR, table 3).
    """

    count: PositiveInt = 100
    at: Literal["attention", "input"] = "attention"


@choice
class AnchorQueries:
    """A decoder input that is learned: one box an object, refined by the head after every block,
    whose sines place the query at every attention (DAB-DETR, arXiv:2201.12329, section 4).
    """

    count: PositiveInt = 300

    def shapes(self, width: int) -> Shapes:
        """Yield name and shape of every parameter."""
        yield "anchors.weight", (self.count, 4)
        for name, inputs, outputs in (
            ("position", 2 * width, width),
            ("scale", width, width),
            ("size", width, 2),
        ):
            yield from linear_shapes(f"{name}.0", inputs, width)
            yield from linear_shapes(f"{name}.1", width, outputs)

    def flops(self, width: int, depth: int) -> int:
        """Of the maps that place the queries before each block; the first block does not scale."""
        maps = (
            linear_flops(self.shapes(width), self.count, f"{name}.0", f"{name}.1")
            for name in ("position", "size")
        )
        scale = linear_flops(self.shapes(width), self.count, "scale.0", "scale.1")
        return depth * sum(maps) + (depth - 1) * scale
