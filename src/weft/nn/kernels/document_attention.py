"""Attention to packed documents and padded rows without a mask: each document is computed
separately. The reference implementation is the same kernel with the whole (L, M) mask.
"""

from typing import Any

import torch
from torch import Tensor

from .attention import AttentionBackend
from .keyed_random import Keys, keys_for_shape, use_keys
from .masks import SHARED_DOCUMENT, CausalMask, FullMask, PatternMask, Positions

# Queries times keys from which on a call per document takes less time on a CPU than a mask.
MIN_SCORES = 1 << 18
# The number of each document (0: padding) and its length.
DocumentLengths = list[tuple[int, int]]


class PerDocumentAttention:
    """The ranges of queries and keys with the same document number."""

    def __init__(self, queries: list[DocumentLengths], keys: list[DocumentLengths]) -> None:
        self.queries = queries
        self.keys = keys

    def __call__(self, kernel: AttentionBackend) -> AttentionBackend:
        """Return the same kernel for whole rows, called once per document; the result of a query
        without keys is 0.
        """

        def attend(
            q_BHLK: Tensor, k_BGMK: Tensor, v_BGMK: Tensor, mask: Tensor | None, **options: Any
        ) -> Tensor:
            assert mask is None
            B, _, L, _ = q_BHLK.shape
            key_BL = None
            if options["dropout"]:
                key_BL = keys_for_shape(torch.Size((B, L, 1)), q_BHLK.device).key_BL
            rows = zip(
                q_BHLK.split(1),
                k_BGMK.split(1),
                v_BGMK.split(1),
                self.queries,
                self.keys,
                strict=True,
            )
            return torch.cat(
                [
                    attend_documents(kernel, *row, None if key_BL is None else key_BL[i], options)
                    for i, row in enumerate(rows)
                ]
            )

        # Lengths differ from batch to batch.
        eager: AttentionBackend = torch.compiler.disable(attend)
        return eager


def attend_documents(
    kernel: AttentionBackend,
    q_1HLK: Tensor,
    k_1GMK: Tensor,
    v_1GMK: Tensor,
    queries: DocumentLengths,
    keys: DocumentLengths,
    key_L: Tensor | None,
    options: dict[str, Any],
) -> Tensor:
    k = split_documents(k_1GMK, keys)
    v = split_documents(v_1GMK, keys)
    index_of_document = {number: i for i, (number, _) in enumerate(keys) if number}
    parts = []
    end = 0
    for q, (number, length) in zip(split_documents(q_1HLK, queries), queries, strict=True):
        end += length
        if number not in index_of_document:
            parts.append(q.new_zeros(*q.shape[:3], v_1GMK.shape[-1]))
            continue
        i = index_of_document[number]
        with use_keys(None if key_L is None else Keys(key_L[None, end - length : end])):
            parts.append(kernel(q, k[i], v[i], None, **options))
    return torch.cat(parts, 2)


def split_documents(t: Tensor, row: DocumentLengths) -> tuple[Tensor, ...]:
    parts: tuple[Tensor, ...] = t.split([length for _, length in row], 2)
    return parts


def per_document_attention(
    pattern: PatternMask, positions: Positions, biased: bool = False
) -> PerDocumentAttention | None:
    """Return the per-document backend for long rows without a position bias, if every query attends
    to its whole document or to all earlier tokens of it. Padding alone needs no (L, M) mask unless
    the pattern is causal.
    """
    mask_BM = positions.attention_mask_BM
    if biased or mask_BM is None or torch.compiler.is_compiling():
        return None
    if type(mask_BM) is not Tensor or mask_BM.device.type != "cpu":
        # Python reads the lengths; on another device every step would wait for them.
        return None
    if positions.query_BL.shape[1] * positions.key_BM.shape[1] < MIN_SCORES:
        return None
    query_ids_BL = positions.query_document_ids_BL
    key_ids_BM = positions.key_document_ids_BM
    if (
        isinstance(pattern, CausalMask)
        and positions.first_query_slot == 0
        and positions.query_BL.shape[1] == positions.key_BM.shape[1]
    ):
        # the queries are the keys; without ids, all tokens of a row are document 1
        query_ids_BL = key_ids_BM = mask_BM.long() if key_ids_BM is None else key_ids_BM
    elif not isinstance(pattern, FullMask):
        return None
    if query_ids_BL is None or key_ids_BM is None:
        return None
    queries = document_runs(query_ids_BL)
    keys = queries if key_ids_BM is query_ids_BL else document_runs(key_ids_BM)
    return None if queries is None or keys is None else PerDocumentAttention(queries, keys)


def document_runs(document_ids_BL: Tensor) -> list[DocumentLengths] | None:
    """Return None if a document occurs twice or other documents attend to it."""
    rows = [torch.unique_consecutive(ids_L, return_counts=True) for ids_L in document_ids_BL]
    document_rows = [
        list(zip(number.tolist(), length.tolist(), strict=True)) for number, length in rows
    ]
    documents = [[number for number, _ in row if number] for row in document_rows]
    apart = all(len(set(row)) == len(row) and SHARED_DOCUMENT not in row for row in documents)
    return document_rows if apart else None
