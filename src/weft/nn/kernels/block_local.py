"""Sliding-window attention at linear cost: a block of queries is compared only with keys within
reach of its window (Beltagy et al. 2020, arXiv:2004.05150, section 3.1). The reference
implementation is the same kernel with the whole (L, M) mask.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from ... import spec as S
from ...spec.attention import sliding_window_block
from .attention import AttentionBackend, add_position_bias
from .keyed_random import Keys, keys_for_shape, use_keys
from .masks import PatternMask, Positions, all_of, in_window, padding_predicates
from .precision import cast_for_autocast

SCORES_PER_CHUNK = 1 << 20  # attention scores per chunk: on a CPU they stay in the cache


class SlotRange(NamedTuple):
    """A range of slots of a row, and the number of missing slots before and after it."""

    begin: int
    end: int
    missing_before: int
    missing_after: int

    def pad(self, t: Tensor, axis: int) -> Tensor:
        """Pad the missing slots with zeros; without any, `F.pad` would copy."""
        return (
            F.pad(t, (0, 0) * (t.dim() - axis - 1) + (self.missing_before, self.missing_after))
            if self.missing_before or self.missing_after
            else t
        )


def slot_range(begin: int, end: int, length: int) -> SlotRange:
    return SlotRange(max(begin, 0), min(end, length), max(-begin, 0), max(end - length, 0))


class Chunk(NamedTuple):
    """The blocks computed together: their queries and all keys within reach."""

    queries: SlotRange
    keys: SlotRange

    def cut(self, q_BHLK: Tensor, *keys: Tensor) -> list[Tensor]:
        return [
            q_BHLK[:, :, self.queries.begin : self.queries.end],
            *(t[:, :, self.keys.begin : self.keys.end] for t in keys),
        ]


class RandomState(NamedTuple):
    """The random numbers of dropout: the number of the call, and the keys of the queries."""

    seed: int
    key_BL: Tensor


class BlockLocalAttention:
    """The division of queries into blocks. Distances between queries and keys are the same in every
    block, so `pair` holds for any block, and scores by distance are computed for one block only.
    """

    def __init__(self, pattern: S.SlidingWindow, positions: Positions, size: int) -> None:
        assert positions.first_query_slot is not None
        self.size = size
        self.span = size + pattern.before + pattern.after
        self.row = positions
        self.start = positions.first_query_slot - pattern.before
        self.queries = positions.query_BL.shape[1]
        self.keys = positions.key_BM.shape[1]
        self.count = -(-self.queries // size)
        at_1M = torch.arange(self.span, device=positions.query_BL.device)[None]
        self.pair = Positions(
            at_1M[:, pattern.before : pattern.before + size], at_1M, first_query_slot=pattern.before
        )
        self.band = in_window(pattern.before, pattern.after)(self.pair)[:, None]

    def __call__(self, kernel: AttentionBackend) -> AttentionBackend:
        """Return the same kernel for whole rows, called block by block; its mask is the bias of one
        block.
        """

        def attend(
            q_BHLK: Tensor,
            k_BGMK: Tensor,
            v_BGMK: Tensor,
            mask: Tensor | None,
            *,
            causal: bool,
            **options: Any,
        ) -> Tensor:
            q_BHLK, k_BGMK, v_BGMK = (cast_for_autocast(t) for t in (q_BHLK, k_BGMK, v_BGMK))
            if torch.compiler.is_compiling():
                return self.attend(
                    kernel, self.chunk(0, self.count), (q_BHLK, k_BGMK, v_BGMK, mask), options
                )
            random = None
            if options["dropout"]:
                keys = keys_for_shape(torch.Size((len(q_BHLK), self.queries, 1)), q_BHLK.device)
                random = RandomState(
                    int(torch.empty((), dtype=torch.int64).random_(1 << 62)), keys.key_BL
                )
            y_BHLK: Tensor = RecomputedAttention.apply(
                self, kernel, options, random, q_BHLK, k_BGMK, v_BGMK, mask
            )
            return y_BHLK

        return attend

    def chunk(self, begin: int, end: int) -> Chunk:
        begin = begin * self.size
        end = end * self.size
        return Chunk(
            slot_range(begin, end, self.queries),
            slot_range(self.start + begin, self.start + end - self.size + self.span, self.keys),
        )

    def chunks(self, q_BHLK: Tensor) -> Iterator[Chunk]:
        scores = SCORES_PER_CHUNK if q_BHLK.device.type == "cpu" else SCORES_PER_CHUNK << 6
        step = max(scores // (q_BHLK.shape[:2].numel() * self.size * self.span), 1)
        for begin in range(0, self.count, step):
            yield self.chunk(begin, min(begin + step, self.count))

    def attend(
        self,
        kernel: AttentionBackend,
        chunk: Chunk,
        parts: tuple[Tensor, Tensor, Tensor, Tensor | None],
        options: dict[str, Any],
    ) -> Tensor:
        """Compute a chunk's attention; its blocks are concatenated in the batch dimension."""
        q_BHLK, k_BGMK, v_BGMK, bias = parts
        B = len(q_BHLK)
        q = strided_windows(chunk.queries.pad(q_BHLK, 2), 2, self.size, self.size)
        k, v = (
            overlapping_windows(chunk.keys.pad(t, 2), self.span, self.size)
            for t in (k_BGMK, v_BGMK)
        )
        y = kernel(q, k, v, self.mask(chunk, B, bias), causal=False, **options)
        y_BHLK: Tensor = y.unflatten(0, (B, -1)).transpose(1, 2).flatten(2, 3)
        return y_BHLK[:, :, : chunk.queries.end - chunk.queries.begin]

    def mask(self, chunk: Chunk, batch: int, bias: Tensor | None) -> Tensor:
        """Return the mask, (1, …) if all blocks of the chunk have the same one, else (blocks,
        …).
        """
        seen = self.band
        row = self.row
        mask_BM = self.row.attention_mask_BM
        if mask_BM is None and (chunk.keys.missing_before or chunk.keys.missing_after):
            mask_BM = torch.ones(1, self.keys, dtype=torch.bool, device=seen.device)
        if mask_BM is not None:

            def cut(t_BL: Tensor | None, at: SlotRange, length: int) -> Tensor | None:
                if t_BL is None:
                    return None
                t_BL = at.pad(t_BL.expand(batch, -1)[:, at.begin : at.end], 1)
                return strided_windows(t_BL, 1, length, self.size)

            pair = self.pair._replace(
                attention_mask_BM=cut(mask_BM, chunk.keys, self.span),
                query_document_ids_BL=cut(row.query_document_ids_BL, chunk.queries, self.size),
                key_document_ids_BM=cut(row.key_document_ids_BM, chunk.keys, self.span),
            )
            seen = seen & all_of(*padding_predicates(pair))(pair)[:, None]
        return seen if bias is None else add_position_bias(bias, seen)


def strided_windows(t: Tensor, axis: int, length: int, step: int) -> Tensor:
    """Return the ranges of `length` slots along an axis that begin at multiples of `step`,
    concatenated in the batch dimension.
    """
    windows: Tensor = t.unfold(axis, length, step)
    return windows.movedim(axis, 1).movedim(-1, axis + 1).flatten(0, 1)


def overlapping_windows(t_BGMK: Tensor, length: int, step: int) -> Tensor:
    if torch.compiler.is_compiling():
        return strided_windows(t_BGMK, 2, length, step)
    windows: Tensor = OverlappingWindows.apply(t_BGMK, length, step)
    return windows


class OverlappingWindows(torch.autograd.Function):
    """`runs` of overlapping keys. PyTorch's backward adds value by value; this one adds a step of a
    range at a time.
    """

    @staticmethod
    def forward(context: Any, t_BGMK: Tensor, length: int, step: int) -> Tensor:
        context.shape = t_BGMK.shape
        context.step = step
        return strided_windows(t_BGMK, 2, length, step)

    @staticmethod
    @once_differentiable
    def backward(context: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (B, _, M, _) = context.shape
        step = context.step
        grad = grad.unflatten(0, (B, -1)).movedim(1, 2)
        count, length = grad.shape[2:4]
        total_BGMK = grad.new_zeros(
            *context.shape[:2], (count - 1 + -(-length // step)) * step, context.shape[3]
        )
        for begin in range(0, length, step):
            part = grad[:, :, :, begin : begin + step]
            total_BGMK[:, :, begin : begin + count * step].unflatten(2, (count, step))[
                :, :, :, : part.shape[3]
            ] += part
        return total_BGMK[:, :, :M], None, None


class RecomputedAttention(torch.autograd.Function):
    """Attention chunk by chunk. The backward recomputes each chunk, so that no attention weights
    are stored, and adds the gradients of keys in place; autograd of a slice would allocate a tensor
    of the whole length per chunk.
    """

    @staticmethod
    def forward(
        context: Any,
        blocks: BlockLocalAttention,
        kernel: AttentionBackend,
        options: dict[str, Any],
        random: RandomState | None,
        q_BHLK: Tensor,
        k_BGMK: Tensor,
        v_BGMK: Tensor,
        bias: Tensor | None,
    ) -> Tensor:
        context.save_for_backward(q_BHLK, k_BGMK, v_BGMK, bias)
        context.how = blocks, kernel, options, random
        y_BHLK = q_BHLK.new_empty(*q_BHLK.shape[:3], v_BGMK.shape[-1])
        for chunk in blocks.chunks(q_BHLK):
            q, k, v = chunk.cut(q_BHLK, k_BGMK, v_BGMK)
            with chunk_rng(q_BHLK, random, blocks, chunk):
                y_BHLK[:, :, chunk.queries.begin : chunk.queries.end] = blocks.attend(
                    kernel, chunk, (q, k, v, bias), options
                )
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
            chunk_bias = bias.detach().requires_grad_() if biased else bias
            with chunk_rng(q_BHLK, random, blocks, chunk), torch.enable_grad():
                y_BHLK = blocks.attend(kernel, chunk, (q, k, v, chunk_bias), options)
            (part,) = chunk.cut(grad_BHLK)
            grads = torch.autograd.grad(
                y_BHLK, (q, k, v, chunk_bias) if biased else (q, k, v), part
            )
            for t, grad in zip(chunk.cut(*total), grads[:3], strict=True):
                t += grad
            if bias_total is not None:
                bias_total += grads[3]
        return None, None, None, None, *total, bias_total


@contextmanager
def chunk_rng(
    t: Tensor, random: RandomState | None, blocks: BlockLocalAttention, chunk: Chunk
) -> Iterator[None]:
    """Run without autocast (the tensors are already cast), with the random numbers of the chunk's
    queries, which are the same in both passes and for any chunk size.
    """
    kind = t.device.type
    devices = [] if kind in ("cpu", "meta") else [t.device]
    narrow = nullcontext() if kind == "meta" else torch.autocast(kind, enabled=False)
    with narrow, torch.random.fork_rng(devices, enabled=random is not None):
        if random is None:
            yield
            return
        torch.manual_seed(random.seed)
        key_BL = random.key_BL[:, chunk.queries.begin : chunk.queries.end]
        with use_keys(
            Keys(strided_windows(chunk.queries.pad(key_BL, 1), 1, blocks.size, blocks.size))
        ):
            yield


def block_local_attention(
    pattern: PatternMask, positions: Positions, biased: bool
) -> BlockLocalAttention | None:
    """Return the block-local backend for rows that are long relative to their window."""
    window = pattern.pattern
    assert isinstance(window, S.SlidingWindow)
    size = sliding_window_block(window, positions.query_BL.shape[1], positions.key_BM.shape[1])
    return (
        None
        if size is None or positions.first_query_slot is None
        else BlockLocalAttention(window, positions, size)
    )
