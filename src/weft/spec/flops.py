"""Forward FLOPs, counted from the spec."""

from typing import NamedTuple

from .block import Block, Branch, ParallelBlock, Pyramid, Stack
from .count import PlacedBlock, iterate_blocks, resnet_convolutions, source_shapes, token_shapes
from .heads import SpecWithHead
from .inputs import AnchorQueries, Patches, Tokens
from .norms import norm_flops
from .parts import linear_flops
from .stems import RESNET_STEMS


def flops(
    spec: SpecWithHead,
    batch: int = 1,
    length: int | None = None,
    target: int | None = None,
    visible: float = 1.0,
) -> int:
    """Forward FLOPs of matrix products for `batch` sequences of `length` (and `target`) tokens, or
    images, of whose patches the blocks see a fraction `visible`.
    """
    tokens = input_tokens(spec, length, target, visible)
    work = input_flops(spec, length)[2]
    read = tokens.visible if spec.target is None else tokens.target
    if isinstance(spec.source, Tokens):
        work += linear_flops(source_shapes(spec), tokens.whole, "source.project")
    if isinstance(spec.target, Tokens):
        work += linear_flops(token_shapes(spec.target, spec.width), read, "project")
    for placed in iterate_blocks(spec):
        count = tokens.read_by(spec, placed)
        side = tokens.side_for(placed)
        work += block_flops(placed.block, placed.width, count, tokens.visible, side)
    work += anchor_flops(spec)
    if isinstance(spec.encoder, Stack):
        work += spec.encoder.flops(spec.width, tokens.visible, 0)
    if spec.decoder is not None:
        memory = tokens.visible if spec.encoder is not None else 0
        work += spec.decoder.flops(spec.width, read, memory)
    if isinstance(spec.encoder, Pyramid):
        side = tokens.side
        for s in range(len(spec.encoder.stages) - 1):
            side = -(-side // 2)
            work += 2 * side * side * (2 * spec.width << s) * (4 * spec.width << s)
        read = side * side
    return batch * (work + spec.head.flops(spec, read))


class InputTokens(NamedTuple):
    """The number of tokens of a row, by stack."""

    side: int  # rows of the image grid
    whole: int
    visible: int  # tokens that the encoder reads
    target: int  # tokens that a decoder after an encoder reads

    def read_by(self, spec: SpecWithHead, block: PlacedBlock) -> int:
        """Return the tokens that a block reads."""
        if block.stage is not None:
            return self.side_for(block) ** 2
        if block.place == "decoder" and spec.encoder is not None:
            return self.target
        return self.whole if block.place == "head" else self.visible

    def side_for(self, block: PlacedBlock) -> int:
        """Return the rows of a block's grid; 0 for a sequence."""
        return 0 if block.place == "head" else -(-self.side // 2 ** (block.stage or 0))


def input_tokens(
    spec: SpecWithHead, length: int | None, target: int | None = None, visible: float = 1.0
) -> InputTokens:
    side, whole, _ = input_flops(spec, length)
    seen = spec.extra_tokens + int((whole - spec.extra_tokens) * visible)
    return InputTokens(side, whole, seen, spec.queries or target or whole)


def anchor_flops(spec: SpecWithHead) -> int:
    """Return the FLOPs that place queries before each block and refine boxes after all but one."""
    if not isinstance(spec.target, AnchorQueries) or spec.decoder is None:
        return 0
    depth = len(spec.decoder.blocks)
    boxes = [row for row in spec.head.shapes(spec) if row[0].startswith("box.")]
    moves = linear_flops(iter(boxes), spec.target.count)
    return spec.target.flops(spec.width, depth) + (depth - 1) * moves


def input_flops(spec: SpecWithHead, length: int | None) -> tuple[int, int, int]:
    """Return the rows of the image grid, the number of tokens and the FLOPs of embedding them."""
    if isinstance(spec.source, Tokens):
        count = length or getattr(spec.source.positions, "count", None) or 512
        return 0, count, 0
    if isinstance(spec.source, Patches):
        s = spec.source
        pixels = length or spec.source.image_size
        side = -(-pixels // s.patch_size)
        work = (
            2 * side * side * spec.width * spec.patch_pixels
            if s.stem is None
            else s.stem.flops(s.channels, spec.width, side * s.patch_size)
        )
        return side, side * side + len(s.extra_tokens), work
    work = 0
    now = length or 224
    entry = 0
    for name, (o, i, k, _), stride in resnet_convolutions(spec.source):
        if name.endswith(("shortcut.convolution", "layers.0.convolution")):
            entry = now  # a shortcut reads what its block reads
        side = -(-(entry if "shortcut" in name else now) // stride)
        work += 2 * side * side * o * i * k * k
        if name.startswith("stem"):
            now = -(-side // RESNET_STEMS[spec.source.stem_type].pool_stride)
        elif "shortcut" not in name:
            now = side
    return now, now * now, work + 2 * now * now * spec.width * spec.source.widths[-1]


def block_flops(b: Block | ParallelBlock, d: int, count: int, memory: int, side: int) -> int:
    work = branch_flops(b.attention, d, count, count, side)
    if isinstance(b, Block) and b.cross_attention is not None:
        work += branch_flops(b.cross_attention, d, count, memory, side)
    return work + branch_flops(b.feedforward, d, count, count, side)


def branch_flops(branch: Branch, d: int, queries: int, keys: int, side: int) -> int:
    norms = (branch.before, branch.out, branch.after)
    work = sum(norm_flops(norm, d, queries) for norm in norms)
    return work + branch.inner.flops(d, queries, keys, side)
