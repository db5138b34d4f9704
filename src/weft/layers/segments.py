"""Packed documents and padded rows without a mask: every run of kept tokens attends to its own keys, by itself. The slow twin is the
same kernel with the whole (L, M) mask."""
from typing import Any

import torch
from torch import Tensor

from .. import spec as S
from .attention import Kernel
from .keyed import Keys, drawing, keys_for
from .mask import Pair

LONG = 1 << 18                             # queries times keys from which on a call per document takes less time on a CPU than a mask
Row = list[tuple[int, int]]                # the number of each document (0: padding) and its length


class Segments:
    """Which run of queries meets which run of keys: those of the same number."""

    def __init__(self, queries: list[Row], keys: list[Row]) -> None:
        self.queries, self.keys = queries, keys

    def __call__(self, kernel: Kernel) -> Kernel:
        """The same kernel for whole rows, made of one call per document; a query that has no keys gives 0."""
        def attend(q_BHLK: Tensor, k_BGMK: Tensor, v_BGMK: Tensor, mask: Tensor | None, **options: Any) -> Tensor:
            assert mask is None
            B, _, L, _ = q_BHLK.shape
            key_BL = keys_for(torch.Size((B, L, 1)), q_BHLK.device).key_BL if options["dropout"] else None
            rows = zip(q_BHLK.split(1), k_BGMK.split(1), v_BGMK.split(1), self.queries, self.keys, strict=True)
            return torch.cat([attend_row(kernel, *row, None if key_BL is None else key_BL[i], options) for i, row in enumerate(rows)])
        eager: Kernel = torch.compiler.disable(attend)         # lengths differ from batch to batch
        return eager


def attend_row(kernel: Kernel, q_1HLK: Tensor, k_1GMK: Tensor, v_1GMK: Tensor, queries: Row, keys: Row,
               key_L: Tensor | None, options: dict[str, Any]) -> Tensor:
    k, v = (cut(t, keys) for t in (k_1GMK, v_1GMK))
    held = {number: i for i, (number, _) in enumerate(keys) if number}
    parts, end = [], 0
    for q, (number, length) in zip(cut(q_1HLK, queries), queries, strict=True):
        end += length
        if number not in held:
            parts.append(q.new_zeros(*q.shape[:3], v_1GMK.shape[-1]))
            continue
        with drawing(None if key_L is None else Keys(key_L[None, end - length:end])):
            parts.append(kernel(q, k[held[number]], v[held[number]], None, **options))
    return torch.cat(parts, 2)


def cut(t: Tensor, row: Row) -> tuple[Tensor, ...]:
    parts: tuple[Tensor, ...] = t.split([length for _, length in row], 2)
    return parts


def segments(pattern: object, pair: Pair) -> Segments | None:
    """For long rows, where every query sees its whole document, or all of it so far. Padding alone needs no (L, M) mask unless
    the pattern is causal."""
    keep_BL, keep_BM = pair.query_keep_BL, pair.key_keep_BM
    if keep_BM is None or torch.compiler.is_compiling():
        return None
    if pair.query_BL.shape[1] * pair.key_BM.shape[1] < (LONG if keep_BM.device.type == "cpu" else LONG << 6):
        return None
    if isinstance(pattern, S.Causal) and pair.first == 0 and pair.query_BL.shape[1] == pair.key_BM.shape[1]:
        keep_BL = keep_BM                  # a cache tells which keys are kept; here these are the queries
    elif not isinstance(pattern, S.Full) or keep_BL is None or keep_BM.dtype == torch.bool:
        return None
    if type(keep_BM) is not Tensor or keep_BM.device.type == "meta":
        return None
    queries, keys = runs(keep_BL), runs(keep_BM)
    return None if queries is None or keys is None else Segments(queries, keys)


def runs(keep_BL: Tensor) -> list[Row] | None:
    """None where a document stands in two places. From another device this is one copy per forward."""
    rows = [torch.unique_consecutive(keep_L, return_counts=True) for keep_L in keep_BL.long().cpu()]
    found = [list(zip(number.tolist(), length.tolist(), strict=True)) for number, length in rows]
    documents = [[number for number, _ in row if number] for row in found]
    return found if all(len(set(row)) == len(row) for row in documents) else None
