"""Parameter counts of a spec by name and shape, without building the model.

FLOPs count matrix products, two per multiply-add, as torch's FlopCounterMode does.
"""

from collections.abc import Iterator
from math import prod
from typing import Literal, NamedTuple

from .block import Block, ParallelBlock, Pyramid, Stack
from .heads import PixelDecoder, SpecWithHead
from .inputs import AnchorQueries, ObjectQueries, Patches, ResNet, SharedTokens, Tokens
from .norms import GroupNorm, norm_shapes
from .parts import Shapes, linear_shapes, with_prefix
from .positions import LearnedPositions, LearnedPositions2D, SinusoidalPositions2D
from .stems import RESNET_STEMS


class PlacedBlock(NamedTuple):
    """A block with its path, width and stack."""

    path: str
    width: int
    block: Block | ParallelBlock
    place: Literal["encoder", "decoder", "head"]
    # the index of the stage in a Pyramid
    stage: int | None = None


def iterate_blocks(spec: SpecWithHead) -> Iterator[PlacedBlock]:
    """Yield every block of a model, stack by stack."""
    if isinstance(spec.encoder, Pyramid):
        for s, stage in enumerate(spec.encoder.stages):
            for i, block in enumerate(stage):
                yield PlacedBlock(f"encoder.stages.{s}.{i}", spec.width << s, block, "encoder", s)
    elif spec.encoder is not None:
        for i, block in enumerate(spec.encoder.blocks):
            yield PlacedBlock(f"encoder.blocks.{i}", spec.width, block, "encoder")
    for i, block in enumerate(spec.decoder.blocks if spec.decoder is not None else ()):
        yield PlacedBlock(f"decoder.blocks.{i}", spec.width, block, "decoder")
    if isinstance(spec.head, PixelDecoder):
        for i, block in enumerate(spec.head.stack.blocks):
            yield PlacedBlock(f"head.stack.blocks.{i}", spec.head.width, block, "head")


def parameter_count(spec: SpecWithHead) -> int:
    count = sum(prod(shape) for _, shape in shapes_outside_blocks(spec))
    # a block that repeats is counted once
    of_block: dict[tuple[int, int], int] = {}
    for _, width, block, *_ in iterate_blocks(spec):
        key = id(block), width
        if key not in of_block:
            of_block[key] = sum(prod(shape) for _, shape in block_shapes(block, width))
        count += of_block[key]
    return count


def parameter_shapes(spec: SpecWithHead) -> Shapes:
    """Yield name and shape of every parameter."""
    yield from shapes_outside_blocks(spec)
    for path, width, b, *_ in iterate_blocks(spec):
        yield from with_prefix(path, block_shapes(b, width))


def shapes_outside_blocks(spec: SpecWithHead) -> Shapes:
    """Yield the parameters outside the blocks."""
    yield from source_shapes(spec)
    if isinstance(spec.target, Tokens):
        yield from with_prefix("target", token_shapes(spec.target, spec.width))
    elif isinstance(spec.target, SharedTokens):
        yield from with_prefix("target", position_and_norm_shapes(spec.target, spec.embedding_dim))
    elif isinstance(spec.target, ObjectQueries):
        yield "target.queries.weight", (spec.target.count, spec.width)
    elif isinstance(spec.target, AnchorQueries):
        yield from with_prefix("target", spec.target.shapes(spec.width))
    for name, stack in (("encoder", spec.encoder), ("decoder", spec.decoder)):
        if isinstance(stack, Stack):
            yield from with_prefix(name, stack.shapes(spec.width))
        elif stack is not None:
            for s in range(len(stack.stages) - 1):
                yield from norm_shapes(
                    f"{name}.merges.{s}.norm", stack.merge_norm, 4 * spec.width << s
                )
                yield f"{name}.merges.{s}.reduce.weight", (2 * spec.width << s, 4 * spec.width << s)
            yield from norm_shapes(f"{name}.norm", stack.norm, spec.head_input_width)
    if spec.layer_mix is not None and spec.layer_mix.combine == "weighted":
        yield "layer_mix.weight", (len(spec.layer_mix.layers),)
    yield from with_prefix("head", spec.head.shapes(spec))


def source_shapes(spec: SpecWithHead) -> Shapes:
    s = spec.source
    d = spec.width
    if isinstance(s, Tokens):
        yield from with_prefix("source", token_shapes(s, d))
    elif isinstance(s, Patches):
        if s.stem is None:
            yield "source.patch.weight", (d, s.channels, s.patch_size, s.patch_size)
            yield "source.patch.bias", (d,)
        else:
            yield from with_prefix("source.patch", s.stem.shapes(s.channels, d))
        if s.extra_tokens:
            yield "source.extra", (len(s.extra_tokens), d)
        if isinstance(s.positions, LearnedPositions | SinusoidalPositions2D):
            yield (
                "source.positions.weight",
                ((s.image_size // s.patch_size) ** 2 + len(s.extra_tokens), d),
            )
        yield from with_prefix("source.positions", grid_position_shapes(s.positions, d))
        yield from norm_shapes("source.norm", s.norm, d)
    else:
        for name, shape, _ in resnet_convolutions(s):
            yield f"source.{name}.weight", shape
            if isinstance(s.norm, GroupNorm):
                norm = f"source.{name.removesuffix('.convolution')}.norm"
                yield from ((f"{norm}.{part}", shape[:1]) for part in ("weight", "bias"))
        yield "source.project.weight", (d, s.widths[-1], 1, 1)
        yield "source.project.bias", (d,)
        yield from with_prefix("source.positions", grid_position_shapes(s.positions, d))


def grid_position_shapes(p: object, d: int) -> Shapes:
    if isinstance(p, LearnedPositions2D):
        yield from (("rows.weight", (p.count, d // 2)), ("columns.weight", (p.count, d // 2)))


def token_shapes(t: Tokens, d: int) -> Shapes:
    width = t.embedding_dim or d
    yield "tokens.weight", (t.vocab_size, width)
    yield from position_and_norm_shapes(t, width)
    if t.token_types:
        yield "segments.weight", (t.token_types, width)
    if width != d:
        yield from linear_shapes("project", width, d)


def position_and_norm_shapes(t: Tokens | SharedTokens, width: int) -> Shapes:
    if t.positions is not None:
        yield from with_prefix("positions", t.positions.shapes(width))
    yield from norm_shapes("norm", t.norm, width)


def resnet_convolutions(b: ResNet) -> Iterator[tuple[str, tuple[int, int, int, int], int]]:
    """ResNet v1.5: name, weight shape and stride of every convolution (He et al. 2015,
    arXiv:1512.03385).
    """
    kernel, stride, _ = RESNET_STEMS[b.stem_type]
    yield "stem.convolution", (b.stem_width, b.channels, kernel, kernel), stride
    before = b.stem_width
    for s, (depth, width) in enumerate(zip(b.depths, b.widths, strict=True)):
        for i in range(depth):
            name = f"stages.{s}.{i}"
            middle = width // 4
            stride = 2 if s and not i else 1
            if before != width or stride > 1:
                yield f"{name}.shortcut.convolution", (width, before, 1, 1), stride
            if b.block == "basic":
                yield f"{name}.layers.0.convolution", (width, before, 3, 3), stride
                yield f"{name}.layers.1.convolution", (width, width, 3, 3), 1
                before = width
                continue
            yield f"{name}.layers.0.convolution", (middle, before, 1, 1), 1
            yield f"{name}.layers.1.convolution", (middle, middle, 3, 3), stride
            yield f"{name}.layers.2.convolution", (width, middle, 1, 1), 1
            before = width


def block_shapes(b: Block | ParallelBlock, d: int) -> Shapes:
    for name in ("attention", "cross_attention", "feedforward"):
        branch = getattr(b, name, None)
        if branch is not None:
            for place in ("before", "out", "after"):
                yield from norm_shapes(f"{name}.{place}", getattr(branch, place), d)
            if branch.layer_scale is not None:
                yield f"{name}.layer_scale.weight", (d,)
            yield from with_prefix(f"{name}.inner", branch.inner.shapes(d))
