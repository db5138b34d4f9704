"""Who may look at whom: predicates that compose, over query and key positions and documents."""
from collections.abc import Callable
from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor

from .. import spec as S


class Pair(NamedTuple):
    """Queries and keys that meet: their positions and what is kept of them, (B or 1, length)."""
    query_BL: Tensor
    key_BM: Tensor
    query_keep_BL: Tensor | None = None
    key_keep_BM: Tensor | None = None
    first: int | None = None               # the key slot of the first query, where kept tokens' distances are those of their slots

    @property
    def offset_BLM(self) -> Tensor:
        """Key position minus query position."""
        return self.key_BM[:, None, :] - self.query_BL[:, :, None]

    def since(self, begin: int) -> "Pair":
        """The same queries with the keys from `begin` on."""
        keep_BM = None if self.key_keep_BM is None else self.key_keep_BM[:, begin:]
        return self._replace(key_BM=self.key_BM[:, begin:], key_keep_BM=keep_BM, first=None if self.first is None else self.first - begin)


FULL, CAUSAL = S.Full(), S.Causal()        # made once: a compiler cannot trace the making of a checked value
Predicate = Callable[[Pair], Tensor]       # True: may look; (B or 1, L, M)


def causal(pair: Pair) -> Tensor:
    return pair.offset_BLM <= 0


def window(before: int, after: int) -> Predicate:
    return lambda pair: (pair.offset_BLM >= -before) & (pair.offset_BLM <= after)


def padding(pair: Pair) -> Tensor:
    assert pair.key_keep_BM is not None
    return (pair.key_keep_BM != 0)[:, None, :]


def document(pair: Pair) -> Tensor:
    """Only within one's own document (of packed short ones)."""
    assert pair.query_keep_BL is not None
    assert pair.key_keep_BM is not None
    return pair.query_keep_BL[:, :, None] == pair.key_keep_BM[:, None, :]


def all_of(*predicates: Predicate) -> Predicate:
    return lambda pair: reduce(torch.logical_and, (p(pair) for p in predicates))


def keep_predicates(pair: Pair) -> list[Predicate]:
    if pair.key_keep_BM is None:
        return []
    documents = pair.key_keep_BM.dtype != torch.bool and pair.query_keep_BL is not None
    return [padding, document] if documents else [padding]


def predicates(pattern: object, pair: Pair) -> list[Predicate]:
    found = keep_predicates(pair)
    if isinstance(pattern, S.Window):
        pattern = covering(pattern, pair)
    if isinstance(pattern, S.Causal):
        return [causal, *found]
    return [window(pattern.before, pattern.after), *found] if isinstance(pattern, S.Window) else found


def covering(pattern: S.Window, pair: Pair) -> object:
    """The simpler pattern that sees the same where the window is wider than the row."""
    if pair.first is None or pattern.before < pair.first + pair.query_BL.shape[1] - 1:
        return pattern
    if pattern.after >= pair.key_BM.shape[1] - pair.first - 1:
        return FULL
    return pattern if pattern.after else CAUSAL


def see(pattern: object, pair: Pair, triangle: bool) -> tuple[Tensor | None, bool]:
    """The mask (True: may look), or None and whether the kernel's own causal triangle does (`triangle` allows it)."""
    found = predicates(pattern, pair)
    L, M = pair.query_BL.shape[1], pair.key_BM.shape[1]
    if not found or (found == [causal] and L == 1 and pair.first == M - 1):
        return None, False                 # the newest token sees all that is stored
    if found == [causal] and triangle and pair.first == 0 and L == M:
        return None, True
    return all_of(*found)(pair)[:, None], False
