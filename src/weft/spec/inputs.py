"""Model inputs: tokens, image patches, features of a convolutional network, object queries."""

from typing import Literal

from ..support.registry import choice
from ..support.values import FiniteFloat, PositiveInt, Probability
from .norms import FrozenBatchNorm, GroupNorm, Norm
from .parts import Shapes, linear_flops, linear_shapes
from .positions import InputPositions, LearnedPositions, LearnedPositions2D, SinusoidalPositions2D
from .stems import PatchStem, ResNetStemType, resnet_stride

# `Spec.source` and `Spec.target` are closed unions: data, batches and `Model.embed` depend on the
# input, so a further source is a new modality. `positions` of Patches and ResNet are closed too:
# their embedding resizes them to other image sizes and drops cells by type. Positions of tokens
# are open.


@choice
class Tokens:
    """Token embeddings with positions and segments.

    Args:
        vocab_size: the number of rows of the token table.
        embedding_dim: the width of the table, projected to the model width (ELECTRA; default: the
            model width).
        positions: positions added to the embeddings (default: none).
        token_types: the number of segments (default: none).
        embedding_scale: the factor of the embeddings (default: 1; the 2017 Transformer: √width).
        norm: the norm of the embeddings (default: none).
        dropout: the dropout probability of the embeddings (default: 0).
    """

    vocab_size: PositiveInt
    embedding_dim: PositiveInt | None = None
    positions: InputPositions | None = None
    token_types: PositiveInt | None = None
    embedding_scale: FiniteFloat = 1.0
    norm: Norm | None = None
    dropout: Probability = 0.0


@choice
class SharedTokens:
    """The decoder reads the source's token table, with its own positions and norm.

    Args:
        positions: positions added to the embeddings (default: none).
        embedding_scale: the factor of the embeddings (default: 1).
        norm: the norm of the embeddings (default: none).
        dropout: the dropout probability of the embeddings (default: 0).
    """

    positions: InputPositions | None = None
    embedding_scale: FiniteFloat = 1.0
    norm: Norm | None = None
    dropout: Probability = 0.0


@choice
class Patches:
    """Square image patches, one linear map, and extra tokens in front (Dosovitskiy et al. 2020,
    arXiv:2010.11929).

    Args:
        image_size: rows and columns of an image in pixels.
        patch_size: rows and columns of a patch in pixels; it divides `image_size`.
        channels: the number of channels (default: 3).
        extra_tokens: learned tokens in front of the patches (default: ("class",)).
        positions: positions of patches and extra tokens (default: none).
        stem: convolutions in place of the linear map (default: none).
        norm: the norm of the embeddings (default: none).
        dropout: the dropout probability of the embeddings (default: 0).
    """

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
    """Features of a ResNet, projected to the model width (DETR, arXiv:2005.12872).

    Args:
        depths: the number of residual blocks per stage (default: (3, 4, 6, 3)).
        widths: the channels per stage (default: (256, 512, 1024, 2048)).
        stem_width: the channels of the first convolution (default: 64).
        stem_type: the first convolution, as in `ResNetStem` (default: "7x7").
        channels: the channels of an image (default: 3).
        block: "bottleneck", or "basic" with two 3×3 convolutions, as in ResNet-18 (default:
            "bottleneck").
        norm: the norm of the feature maps (default: `FrozenBatchNorm()`).
        padding: the treatment of padded images: "zeros" masks padding in attention only, as
            published models do; "masked" masks it in convolutions too, so that features do not
            depend on the batch. Default: "zeros".
        positions: positions of the cells (default: `SinusoidalPositions2D(scale="unit")`).
        positions_at: where positions enter: "attention" of both stacks, "encoder-attention",
            "decoder-attention" or "input" (DETR, section 4.2 and table 3). Default: "attention".
    """

    depths: tuple[PositiveInt, ...] = (3, 4, 6, 3)
    widths: tuple[PositiveInt, ...] = (256, 512, 1024, 2048)
    stem_width: PositiveInt = 64
    stem_type: ResNetStemType = "7x7"
    channels: PositiveInt = 3
    block: Literal["bottleneck", "basic"] = "bottleneck"
    norm: FrozenBatchNorm | GroupNorm = FrozenBatchNorm()
    padding: Literal["zeros", "masked"] = "zeros"
    positions: SinusoidalPositions2D | LearnedPositions2D | None = SinusoidalPositions2D(
        scale="unit"
    )
    positions_at: Literal["attention", "encoder-attention", "decoder-attention", "input"] = (
        "attention"
    )

    @property
    def stride(self) -> int:
        """Pixels per cell, along each side."""
        return resnet_stride(self.stem_type, len(self.depths))


@choice
class ObjectQueries:
    """Learned decoder inputs, one vector per object (DETR, table 3).

    Args:
        count: the number of queries (default: 100).
        at: whether queries are added at every "attention" or once at the "input" (default:
            "attention").
    """

    count: PositiveInt = 100
    at: Literal["attention", "input"] = "attention"


@choice
class AnchorQueries:
    """Learned decoder inputs, one box per object (DAB-DETR, arXiv:2201.12329, section 4). The head
    refines the box after every block; its sinusoids are the query's positions at every attention.

    Args:
        count: the number of queries (default: 300).
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
        """Return the FLOPs of the maps from boxes to query positions before each block; the first
        block does not scale.
        """
        maps = (
            linear_flops(self.shapes(width), self.count, f"{name}.0", f"{name}.1")
            for name in ("position", "size")
        )
        scale = linear_flops(self.shapes(width), self.count, "scale.0", "scale.1")
        return depth * sum(maps) + (depth - 1) * scale
