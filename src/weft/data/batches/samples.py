"""Samples: windows of running text, and rows such as pairs, labelled texts and images."""

from typing import Any, Protocol

import numpy as np

from ..shards.store import Store

Sample = dict[str, Any]  # numpy arrays, numbers, bytes and strings


class RowSamples:
    """One sample per row. Its length is the sum over columns or, with `longest_column`, that of the
    longest one, for columns of different streams. `extra_tokens` counts tokens added later, such as
    special tokens.
    """

    def __init__(
        self,
        store: Store,
        length_of: tuple[str, ...] = (),
        *,
        longest_column: bool = False,
        extra_tokens: int = 0,
    ) -> None:
        self.store = store
        self.length_of = length_of
        self.longest_column = longest_column
        self.extra_tokens = extra_tokens
        if not len(store):
            raise ValueError("the data has no rows; give a source with rows")

    def __len__(self) -> int:
        return len(self.store)

    def __getitem__(self, i: int) -> Sample:
        return self.store.row(i)

    def lengths(self, indices: np.ndarray) -> np.ndarray:
        columns = [self.store.lengths(indices, column) for column in self.length_of]
        if not columns:
            return np.ones(len(indices), np.int64)
        together: np.ndarray = (np.max if self.longest_column else np.sum)(columns, axis=0)
        return together + self.extra_tokens


class Samples(Protocol):
    def __len__(self) -> int: ...
    def __getitem__(self, i: int) -> Sample: ...
    def lengths(self, indices: np.ndarray) -> np.ndarray:
        """Return approximate lengths of the samples, cheaply."""


class TokenWindows:
    """Windows of `size` tokens, `stride` apart; `include_partial` adds a last, shorter window, so
    that every token is read.
    """

    def __init__(self, store: Store, size: int, stride: int, include_partial: bool = False) -> None:
        self.store = store
        self.size = size
        self.stride = stride
        beyond = store.tokens - size
        if include_partial:
            beyond = max(beyond, 0) + stride - 1
        self.count = max(1 + beyond // stride, 0) if store.tokens else 0
        if not self.count:
            raise ValueError(
                f"the data has {store.tokens} tokens, less than one window of {size}; give more "
                "text or a shorter length"
            )

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, i: int) -> Sample:
        start = i * self.stride
        stop = min(start + self.size, self.store.tokens)
        return {
            "tokens": self.store.stream(start, stop),
            "documents": self.store.documents(start, stop) - start,
        }

    def lengths(self, indices: np.ndarray) -> np.ndarray:
        return np.minimum(
            self.size, self.store.tokens - np.asarray(indices, np.int64) * self.stride
        )


class SentenceSamples:
    """Sample i is the sentences that start in tokens [i * size, (i + 1) * size), truncated to
    `size`; each sentence starts in exactly one sample. Without a sentence start, the sample is
    those tokens.

    With `follow`, the sample includes the next sentence and is truncated to twice the size: in
    BERT's data, a long sentence then has a successor.
    """

    def __init__(self, store: Store, size: int, follow: bool = False) -> None:
        if not store.tokens:
            raise ValueError("the data has no tokens; give more text")
        self.store = store
        self.size = size
        self.follow = follow

    def __len__(self) -> int:
        return -(-self.store.tokens // self.size)

    def __getitem__(self, i: int) -> Sample:
        first = i * self.size
        after = (i + 1) * self.size
        max_tokens = 2 * self.size if self.follow else self.size
        starts = self.store.sentences(first, after + max_tokens)
        sentence_starts = starts[: starts.searchsorted(after)]
        start = int(sentence_starts[0]) if len(sentence_starts) else first
        stop = min(start + max_tokens, self.store.tokens)
        count = len(sentence_starts) + (1 if self.follow else 0)
        if not len(sentence_starts):
            sentence_starts = np.array([first])
        else:
            stop = min([stop, *starts[count : count + 1].tolist()])
            sentence_starts = starts[: starts[:count].searchsorted(stop)]
        return {
            "tokens": self.store.stream(start, stop),
            "sentences": sentence_starts - start,
            "documents": self.store.documents(start, stop) - start,
        }

    def lengths(self, indices: np.ndarray) -> np.ndarray:
        return np.full(len(indices), self.size)
