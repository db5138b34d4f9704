"""Samples that are rows: pairs, examples, images."""
import numpy as np

from .store import Store
from .text import Sample


class Table:
    """A sample is a row. Its length is that of the columns of `length_of` end to end; with `apart`, that of the longest,
    for columns that go into different streams. `extra` counts what a corruption adds, such as marks."""

    def __init__(self, store: Store, length_of: tuple[str, ...] = (), *, apart: bool = False, extra: int = 0) -> None:
        self.store, self.length_of, self.apart, self.extra = store, length_of, apart, extra
        if not len(store):
            raise ValueError("the data holds no rows; give more")

    def __len__(self) -> int:
        return len(self.store)

    def __getitem__(self, i: int) -> Sample:
        return self.store.row(i)

    def lengths(self, indices: np.ndarray) -> np.ndarray:
        columns = [self.store.lengths(indices, column) for column in self.length_of]
        if not columns:
            return np.ones(len(indices), np.int64)
        together: np.ndarray = (np.max if self.apart else np.sum)(columns, axis=0)
        return together + self.extra
