"""Blocks in order. What blocks that look the same way are told is worked out once a forward."""
import torch
from torch import Tensor, nn

from .. import spec as S
from ..count import widths, window_block
from ..layers.attention import View, add_score, fused
from ..layers.block_local import Blocks
from ..layers.keyed import keys_of
from ..layers.mask import FULL, Pair, see
from ..layers.norm import build_norm
from ..layers.position import angles, build_score
from ..layers.roles import Role, with_role
from ..layers.segments import Segments, segments
from ..layers.sequence import Sequence
from .block import Block
from .cache import Cache


def count(sequence: Sequence) -> Tensor:
    if sequence.position_BL is not None:
        return sequence.position_BL
    return torch.arange(sequence.x_BLD.shape[1], device=sequence.x_BLD.device)[None]


def self_pair(sequence: Sequence, cache: Cache | None) -> Pair:
    position_BL, keep_BL = count(sequence), sequence.keep_BL
    if cache is None:
        return Pair(position_BL, position_BL, keep_BL, keep_BL, first=0 if sequence.position_BL is None else None)
    end, L = cache.length, position_BL.shape[1]
    if not cache.padded:
        return Pair(position_BL, cache.position_BM[:, :end], first=end - L)
    # a padded prompt that others follow leaves holes: from then on slots and positions differ
    return Pair(position_BL, cache.position_BM[:, :end], None, cache.keep_BM[:, :end], first=0 if end == L else None)


class Stack(nn.Module):
    def __init__(self, s: S.Stack, width: int, layers: tuple[int, ...] = ()) -> None:
        """`layers`: those whose outputs are handed on beside the last one's, as `S.Layers` numbers them."""
        super().__init__()
        self.blocks = nn.ModuleList(Block(b, width) for b in s.blocks)
        self.layers = [i % (len(s.blocks) + 1) for i in layers]
        inners = [b.attention.inner for b in s.blocks]
        self.attentions = [a for a in inners if isinstance(a, S.Attention)]
        self.looks = list(dict.fromkeys(look(a) for a in self.attentions))
        self.which = [self.looks.index(look(a)) for a in self.attentions]
        self.width = width
        self.score = build_score(s.score, self.attentions[0].heads)
        self.norm = build_norm(s.norm, width)
        self.keep_BL: Tensor | None = None                     # of the newest forward: what the routers' losses leave out

    def forward(self, sequence: Sequence, memory: Sequence | None = None, cache: Cache | None = None) -> Sequence:
        self.keep_BL = sequence.keep_BL
        split = all(block.attention.inner.kernel is fused for block in self.blocks)  # type: ignore[union-attr]
        views = self.views(sequence, cache, split=split)
        across = None if memory is None else look_across(sequence, memory, split=split, training=self.training)
        x_BLD = sequence.x_BLD
        held = {0: x_BLD} if 0 in self.layers else {}
        for i, block in enumerate(self.blocks):
            x_BLD = block(x_BLD, views[self.which[i]], None if memory is None else memory.x_BLD, across,
                          None if cache is None else cache.blocks[i])
            if i + 1 in self.layers:
                held[i + 1] = x_BLD
        x_BLD = self.norm(x_BLD)
        if len(self.blocks) in held:       # the last layer's output is the stack's
            held[len(self.blocks)] = x_BLD
        return sequence._replace(x_BLD=x_BLD, layers=tuple(held[i] for i in self.layers))

    def views(self, sequence: Sequence, cache: Cache | None, *, split: bool = False) -> list[View]:
        """`split`: long rows in parts. A kernel that shows its weights sees whole rows."""
        pair, keys = self_pair(sequence, cache), keys_of(sequence) if self.training else None
        views = []
        for a in self.looks:
            begin = 0 if cache is None else cache.begin(a.pattern)     # a window has let go of what it cannot see
            seen = pair.since(begin) if begin else pair
            parts = part(a.pattern, seen, self.score is not None or a.score is not None) if split else None
            mask, causal = None, isinstance(a.pattern, S.Causal)
            if parts is None:
                mask, causal = see(a.pattern, seen, triangle=self.score is None and a.score is None)
            elif isinstance(parts, Blocks):
                seen = parts.pair
            if self.score is not None:
                mask = add_score(self.score(seen), mask)
            turn = None
            if a.rotary is not None:
                turn = angles(a.rotary, pair.query_BL, widths(a, self.width)[0], torch.float64
                              if sequence.x_BLD.dtype == torch.float64 else torch.float32)
            views.append(View(seen, mask, causal, turn, sequence.place_BLD, None, sequence.grid, keys, parts))
        return views


def part(pattern: object, pair: Pair, scored: bool) -> Blocks | Segments | None:
    """How long rows are computed in parts; None: at once, with a mask where one is needed."""
    if not isinstance(pattern, S.Window):
        return None if scored else segments(pattern, pair)
    size = window_block(pattern, pair.query_BL.shape[1], pair.key_BM.shape[1])
    return None if size is None or pair.first is None else Blocks(pattern, pair, size)


def look(a: S.Attention) -> S.Attention:
    """The part of an attention that decides what it is told."""
    return S.Attention(heads=a.heads, key_width=a.key_width, pattern=a.pattern, rotary=a.rotary, score=a.score)


def look_across(sequence: Sequence, memory: Sequence, *, split: bool = False, training: bool = False) -> View:
    pair = Pair(count(sequence), count(memory), sequence.keep_BL, memory.keep_BL)
    if sequence.keep_BL is None or memory.keep_BL is None or sequence.keep_BL.dtype == torch.bool:
        pair = pair._replace(query_keep_BL=None)
    parts = segments(FULL, pair) if split else None
    mask = None if parts is not None else see(FULL, pair, triangle=False)[0]
    keys = keys_of(sequence, memory) if training else None
    return View(pair, mask, False, None, sequence.place_BLD, memory.place_BLD, keys=keys, split=parts)


class Merge(nn.Module):
    """2×2 neighbours become one token of twice the width (Swin, section 3.1)."""

    def __init__(self, norm: S.Norm, width: int) -> None:
        super().__init__()
        self.norm = build_norm(norm, 4 * width)
        self.reduce = with_role(nn.Linear(4 * width, 2 * width, bias=False), Role.PROJECTION)

    def forward(self, sequence: Sequence) -> Sequence:
        assert sequence.grid is not None
        rows, columns = sequence.grid
        x = sequence.x_BLD.unflatten(1, (rows, columns))
        x = nn.functional.pad(x, (0, 0, 0, columns % 2, 0, rows % 2))
        x = torch.cat([x[:, r::2, c::2] for c in (0, 1) for r in (0, 1)], -1)
        return Sequence(self.reduce(self.norm(x.flatten(1, 2))), grid=(x.shape[1], x.shape[2]))


class Pyramid(nn.Module):
    def __init__(self, s: S.Pyramid, width: int) -> None:
        super().__init__()
        plain = [Stack(S.Stack(blocks=stage), width << i) for i, stage in enumerate(s.stages)]
        self.stages = nn.ModuleList(stack.blocks for stack in plain)
        self.merges = nn.ModuleList(Merge(s.merge, width << i) for i in range(len(s.stages) - 1))
        self.norm = build_norm(s.norm, width << len(s.stages) - 1)

    def forward(self, sequence: Sequence) -> Sequence:
        for i, stage in enumerate(self.stages):
            if i:
                sequence = self.merges[i - 1](sequence)
            view = View(self_pair(sequence, None), grid=sequence.grid, keys=keys_of(sequence) if self.training else None)
            x_BLD = sequence.x_BLD
            for block in stage:  # type: ignore[attr-defined]
                x_BLD = block(x_BLD, view)
            sequence = sequence._replace(x_BLD=x_BLD)
        return sequence._replace(x_BLD=self.norm(sequence.x_BLD))
