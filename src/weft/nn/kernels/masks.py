"""Attention masks: composable predicates over query and key positions and documents."""

from collections.abc import Callable
from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor

from ... import spec as S
from ...support.registry import implementation

SHARED_DOCUMENT = -1  # every document attends to it; it attends only to itself


class Positions(NamedTuple):
    """The positions of queries and keys, padding, and document ids, (B or 1, length)."""

    query_BL: Tensor
    key_BM: Tensor
    attention_mask_BM: Tensor | None = None  # False: a key that is padding
    query_document_ids_BL: Tensor | None = None
    key_document_ids_BM: Tensor | None = None
    # The key slot of the first query, where kept tokens' distances are those of their slots.
    first_query_slot: int | None = None

    @property
    def offset_BLM(self) -> Tensor:
        """Key position minus query position."""
        return self.key_BM[:, None, :] - self.query_BL[:, :, None]

    def from_key(self, begin: int) -> "Positions":
        """The same queries with the keys from `begin` on."""
        mask_BM, document_ids_BM = (
            None if t_BM is None else t_BM[:, begin:]
            for t_BM in (self.attention_mask_BM, self.key_document_ids_BM)
        )
        return self._replace(
            key_BM=self.key_BM[:, begin:],
            attention_mask_BM=mask_BM,
            key_document_ids_BM=document_ids_BM,
            first_query_slot=None
            if self.first_query_slot is None
            else self.first_query_slot - begin,
        )


Predicate = Callable[[Positions], Tensor]  # True: attend; (B or 1, L, M)


def is_causal(positions: Positions) -> Tensor:
    return positions.offset_BLM <= 0


def in_window(before: int, after: int) -> Predicate:
    return lambda pair: (pair.offset_BLM >= -before) & (pair.offset_BLM <= after)


def is_not_padding(positions: Positions) -> Tensor:
    assert positions.attention_mask_BM is not None
    return positions.attention_mask_BM[:, None, :]


def in_same_document(positions: Positions) -> Tensor:
    """Attend only within the same document (of packed ones) and to the shared document."""
    query_BL = positions.query_document_ids_BL
    key_BM = positions.key_document_ids_BM
    assert query_BL is not None
    assert key_BM is not None
    is_shared_BM = key_BM == SHARED_DOCUMENT
    return (query_BL[:, :, None] == key_BM[:, None, :]) | is_shared_BM[:, None, :]


def all_of(*predicates: Predicate) -> Predicate:
    return lambda pair: reduce(torch.logical_and, (p(pair) for p in predicates))


def resolve_masks(
    attention_mask: Tensor | None, document_ids: Tensor | None
) -> tuple[Tensor | None, Tensor | None]:
    """Return the mask as booleans and the document ids with 0 at all padding: document 0 is
    padding, so the ids imply the mask.
    """
    if document_ids is None:
        return None if attention_mask is None else attention_mask.bool(), None
    if attention_mask is not None:
        document_ids = document_ids.masked_fill(~attention_mask.bool(), 0)
    return document_ids != 0, document_ids


def padding_predicates(positions: Positions) -> list[Predicate]:
    predicates: list[Predicate] = []
    if positions.attention_mask_BM is not None:
        predicates.append(is_not_padding)
    if positions.query_document_ids_BL is not None and positions.key_document_ids_BM is not None:
        predicates.append(in_same_document)
    return predicates


# Patterns


class PatternMask:
    """Base of pattern implementations: which keys a query attends to. A user-defined pattern needs
    `allowed` and may name a backend for long rows.
    """

    # Name of a `weft.nn.kernels.attention.PatternBackend`, which is faster and equivalent.
    backend: str | None = None

    def __init__(self, pattern: S.Pattern) -> None:
        self.pattern = pattern

    def allowed(self, query_BL: Tensor, key_BM: Tensor) -> Tensor:
        """Return whether a query at one position attends to a key at another, booleans (B or 1, L,
        M).
        """
        raise NotImplementedError(
            f"{type(self).__name__} has no method allowed(query_BL, key_BM); define it"
        )

    def predicates(self, positions: Positions) -> list[Predicate]:
        """Return the predicate of the pattern, in addition to padding and documents."""
        return [lambda pair: self.allowed(pair.query_BL, pair.key_BM)]


class NoMask(PatternMask):
    """The mask of a pattern whose layer needs none."""

    def predicates(self, positions: Positions) -> list[Predicate]:
        return []


class FullMask(NoMask):
    backend = "per-document"


class CausalMask(PatternMask):
    backend = "per-document"

    def predicates(self, positions: Positions) -> list[Predicate]:
        return [is_causal]


class WindowMask(PatternMask):
    backend = "block-local"

    def __init__(self, pattern: S.SlidingWindow) -> None:
        super().__init__(pattern)
        self.before = pattern.before
        self.after = pattern.after

    def predicates(self, positions: Positions) -> list[Predicate]:
        """Return a simpler pattern for a window wider than the row: full or causal attention."""
        if (
            positions.first_query_slot is None
            or self.before < positions.first_query_slot + positions.query_BL.shape[1] - 1
        ):
            return [in_window(self.before, self.after)]
        if self.after >= positions.key_BM.shape[1] - positions.first_query_slot - 1:
            return []
        return [in_window(self.before, self.after)] if self.after else [is_causal]


FULL = FullMask(S.FullAttention())


def pattern_mask(pattern: S.Pattern) -> PatternMask:
    """Build the mask of a pattern; None for a pattern with its own layer."""
    mask_class = implementation(pattern)
    mask: PatternMask = (mask_class if issubclass(mask_class, PatternMask) else NoMask)(pattern)
    return mask


def build_mask(
    pattern: PatternMask, positions: Positions, triangle: bool
) -> tuple[Tensor | None, bool]:
    """Return the mask (True: attend), or None and whether the kernel's causal mask applies
    (`triangle` allows it).
    """
    predicates = [*pattern.predicates(positions), *padding_predicates(positions)]
    L = positions.query_BL.shape[1]
    M = positions.key_BM.shape[1]
    if not predicates or (
        predicates == [is_causal] and L == 1 and positions.first_query_slot == M - 1
    ):
        return None, False  # the newest token attends to all stored tokens
    if predicates == [is_causal] and triangle and positions.first_query_slot == 0 and L == M:
        return None, True
    return all_of(*predicates)(positions)[:, None], False


def positions_of_tokens(attention_mask_BL: Tensor) -> Tensor:
    """0, 1, 2, … over the tokens of a row that are not padding."""
    return (attention_mask_BL.long().cumsum(1) - 1).clamp(min=0)


def positions_within_documents(document_ids_BL: Tensor) -> Tensor:
    """0, 1, 2, … over the tokens of a row, starting again at every document."""
    slot_L = torch.arange(document_ids_BL.shape[1], device=document_ids_BL.device)
    begins_BL = torch.ones_like(document_ids_BL, dtype=torch.bool)
    begins_BL[:, 1:] = document_ids_BL[:, 1:] != document_ids_BL[:, :-1]
    return (slot_L - torch.where(begins_BL, slot_L, 0).cummax(1).values).masked_fill(
        document_ids_BL == 0, 0
    )
