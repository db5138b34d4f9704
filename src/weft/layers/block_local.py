"""Attention in a sliding window at linear cost: a block of queries meets only the keys that its window can reach (Beltagy et al. 2020,
arXiv:2004.05150, section 3.1). The slow twin is the same kernel with the whole (L, M) mask."""
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from .. import spec as S
from .attention import Kernel, add_score
from .keyed import Keys, drawing, keys_for
from .mask import Pair, all_of, keep_predicates, window
from .precision import cast_once

SCORES = 1 << 20                           # attention scores per chunk: on a CPU they stay in the cache


class Slots(NamedTuple):
    """A run of slots of a row, and how many more are missing before and after it."""
    begin: int
    end: int
    lack: int
    over: int

    def pad(self, t: Tensor, axis: int) -> Tensor:
        """Zeros for what is missing. Without any, `F.pad` would copy."""
        return F.pad(t, (0, 0) * (t.dim() - axis - 1) + (self.lack, self.over)) if self.lack or self.over else t


def slots(begin: int, end: int, length: int) -> Slots:
    return Slots(max(begin, 0), min(end, length), max(-begin, 0), max(end - length, 0))


class Chunk(NamedTuple):
    """Blocks that are computed at once: their queries, and all keys in their reach."""
    queries: Slots
    keys: Slots

    def cut(self, q_BHLK: Tensor, *keys: Tensor) -> list[Tensor]:
        return [q_BHLK[:, :, self.queries.begin:self.queries.end], *(t[:, :, self.keys.begin:self.keys.end] for t in keys)]


class Random(NamedTuple):
    """What dropout draws with: the number of the call, and the queries' keys."""
    seed: int
    key_BL: Tensor


class Blocks:
    """How the queries of a window are split. In every block the same query meets the same key at the same distance, so `pair` is the
    pair of any block, and scores that depend on distance are computed for one block only."""

    def __init__(self, pattern: S.Window, pair: Pair, size: int) -> None:
        assert pair.first is not None
        self.size, self.span = size, size + pattern.before + pattern.after
        self.row, self.start = pair, pair.first - pattern.before
        self.queries, self.keys = pair.query_BL.shape[1], pair.key_BM.shape[1]
        self.count = -(-self.queries // size)
        at_1M = torch.arange(self.span, device=pair.query_BL.device)[None]
        self.pair = Pair(at_1M[:, pattern.before:pattern.before + size], at_1M, first=pattern.before)
        self.band = window(pattern.before, pattern.after)(self.pair)[:, None]

    def __call__(self, kernel: Kernel) -> Kernel:
        """The same kernel for whole rows, made of calls for blocks; its mask is the bias of one block."""
        def attend(q_BHLK: Tensor, k_BGMK: Tensor, v_BGMK: Tensor, mask: Tensor | None, *, causal: bool, **options: Any) -> Tensor:
            q_BHLK, k_BGMK, v_BGMK = (cast_once(t) for t in (q_BHLK, k_BGMK, v_BGMK))
            if torch.compiler.is_compiling():
                return self.attend(kernel, self.chunk(0, self.count), (q_BHLK, k_BGMK, v_BGMK, mask), options)
            random = None
            if options["dropout"]:
                keys = keys_for(torch.Size((len(q_BHLK), self.queries, 1)), q_BHLK.device)
                random = Random(int(torch.empty((), dtype=torch.int64).random_(1 << 62)), keys.key_BL)
            y_BHLK: Tensor = Recomputed.apply(self, kernel, options, random, q_BHLK, k_BGMK, v_BGMK, mask)
            return y_BHLK
        return attend

    def chunk(self, begin: int, end: int) -> Chunk:
        begin, end = begin * self.size, end * self.size
        return Chunk(slots(begin, end, self.queries), slots(self.start + begin, self.start + end - self.size + self.span, self.keys))

    def chunks(self, q_BHLK: Tensor) -> Iterator[Chunk]:
        scores = SCORES if q_BHLK.device.type == "cpu" else SCORES << 6
        step = max(scores // (q_BHLK.shape[:2].numel() * self.size * self.span), 1)
        for begin in range(0, self.count, step):
            yield self.chunk(begin, min(begin + step, self.count))

    def attend(self, kernel: Kernel, chunk: Chunk, parts: tuple[Tensor, Tensor, Tensor, Tensor | None], options: dict[str, Any]) -> Tensor:
        """Attention of a chunk's queries to its keys; the blocks stand side by side in the batch."""
        q_BHLK, k_BGMK, v_BGMK, bias = parts
        B = len(q_BHLK)
        q = runs(chunk.queries.pad(q_BHLK, 2), 2, self.size, self.size)
        k, v = (overlapping(chunk.keys.pad(t, 2), self.span, self.size) for t in (k_BGMK, v_BGMK))
        y = kernel(q, k, v, self.mask(chunk, B, bias), causal=False, **options)
        y_BHLK: Tensor = y.unflatten(0, (B, -1)).transpose(1, 2).flatten(2, 3)
        return y_BHLK[:, :, :chunk.queries.end - chunk.queries.begin]

    def mask(self, chunk: Chunk, batch: int, bias: Tensor | None) -> Tensor:
        """(1, …) where all blocks of the chunk see alike, else (blocks, …)."""
        seen, keep_BL, keep_BM = self.band, self.row.query_keep_BL, self.row.key_keep_BM
        if keep_BM is None and (chunk.keys.lack or chunk.keys.over):
            keep_BM = torch.ones(1, self.keys, dtype=torch.bool, device=seen.device)
        if keep_BM is not None:
            def cut(keep: Tensor, at: Slots, length: int) -> Tensor:
                return runs(at.pad(keep.expand(batch, -1)[:, at.begin:at.end], 1), 1, length, self.size)
            pair = self.pair._replace(key_keep_BM=cut(keep_BM, chunk.keys, self.span),
                                      query_keep_BL=None if keep_BL is None else cut(keep_BL, chunk.queries, self.size))
            seen = seen & all_of(*keep_predicates(pair))(pair)[:, None]
        return seen if bias is None else add_score(bias, seen)


def runs(t: Tensor, axis: int, length: int, step: int) -> Tensor:
    """Every run of `length` slots along an axis that begins at a multiple of `step`; runs stand side by side in the batch."""
    found: Tensor = t.unfold(axis, length, step)
    return found.movedim(axis, 1).movedim(-1, axis + 1).flatten(0, 1)


def overlapping(t_BGMK: Tensor, length: int, step: int) -> Tensor:
    if torch.compiler.is_compiling():
        return runs(t_BGMK, 2, length, step)
    found: Tensor = Overlapping.apply(t_BGMK, length, step)
    return found


class Overlapping(torch.autograd.Function):
    """`runs` of keys that overlap. torch's own backward adds number by number; here a run's gradient is added a step at a time."""

    @staticmethod
    def forward(context: Any, t_BGMK: Tensor, length: int, step: int) -> Tensor:
        context.shape, context.step = t_BGMK.shape, step
        return runs(t_BGMK, 2, length, step)

    @staticmethod
    @once_differentiable
    def backward(context: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (B, _, M, _), step = context.shape, context.step
        grad = grad.unflatten(0, (B, -1)).movedim(1, 2)
        count, length = grad.shape[2:4]
        total_BGMK = grad.new_zeros(*context.shape[:2], (count - 1 + -(-length // step)) * step, context.shape[3])
        for begin in range(0, length, step):
            part = grad[:, :, :, begin:begin + step]
            total_BGMK[:, :, begin:begin + count * step].unflatten(2, (count, step))[:, :, :, :part.shape[3]] += part
        return total_BGMK[:, :, :M], None, None


class Recomputed(torch.autograd.Function):
    """Chunk by chunk. The backward computes each chunk again, so that no attention weights are stored, and adds the gradients of keys in
    place: a slice under autograd would make a tensor of the whole length per chunk."""

    @staticmethod
    def forward(context: Any, blocks: Blocks, kernel: Kernel, options: dict[str, Any], random: Random | None, q_BHLK: Tensor,
                k_BGMK: Tensor, v_BGMK: Tensor, bias: Tensor | None) -> Tensor:
        context.save_for_backward(q_BHLK, k_BGMK, v_BGMK, bias)
        context.how = blocks, kernel, options, random
        y_BHLK = q_BHLK.new_empty(*q_BHLK.shape[:3], v_BGMK.shape[-1])
        for chunk in blocks.chunks(q_BHLK):
            q, k, v = chunk.cut(q_BHLK, k_BGMK, v_BGMK)
            with apart(q_BHLK, random, blocks, chunk):
                y_BHLK[:, :, chunk.queries.begin:chunk.queries.end] = blocks.attend(kernel, chunk, (q, k, v, bias), options)
        return y_BHLK

    @staticmethod
    @once_differentiable
    def backward(context: Any, grad_BHLK: Tensor) -> tuple[Tensor | None, ...]:
        blocks, kernel, options, random = context.how
        q_BHLK, k_BGMK, v_BGMK, bias = context.saved_tensors
        biased = context.needs_input_grad[-1]
        total = [torch.zeros_like(t) for t in (q_BHLK, k_BGMK, v_BGMK)]
        bias_total = torch.zeros_like(bias) if biased else None
        for chunk in blocks.chunks(q_BHLK):
            q, k, v = (t.detach().requires_grad_() for t in chunk.cut(q_BHLK, k_BGMK, v_BGMK))
            own = bias.detach().requires_grad_() if biased else bias
            with apart(q_BHLK, random, blocks, chunk), torch.enable_grad():
                y_BHLK = blocks.attend(kernel, chunk, (q, k, v, own), options)
            (part,) = chunk.cut(grad_BHLK)
            grads = torch.autograd.grad(y_BHLK, (q, k, v, own) if biased else (q, k, v), part)
            for t, grad in zip(chunk.cut(*total), grads[:3], strict=True):
                t += grad
            if bias_total is not None:
                bias_total += grads[3]
        return None, None, None, None, *total, bias_total


@contextmanager
def apart(t: Tensor, random: Random | None, blocks: Blocks, chunk: Chunk) -> Iterator[None]:
    """Without autocast (the tensors are cast already), and with the random numbers of the chunk's queries, the same in both passes and
    however many blocks a chunk holds."""
    kind = t.device.type
    devices = [] if kind in ("cpu", "meta") else [t.device]
    narrow = nullcontext() if kind == "meta" else torch.autocast(kind, enabled=False)
    with narrow, torch.random.fork_rng(devices, enabled=random is not None):
        if random is None:
            yield
            return
        torch.manual_seed(random.seed)
        key_BL = random.key_BL[:, chunk.queries.begin:chunk.queries.end]
        with drawing(Keys(runs(chunk.queries.pad(key_BL, 1), 1, blocks.size, blocks.size))):
            yield
