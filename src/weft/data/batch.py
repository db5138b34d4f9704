"""From samples to a batch: rows of different length in one array, padded, or several in one row."""
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from .order import Draws
from .plan import Pick
from .text import Samples

if TYPE_CHECKING:
    from torch import Tensor

SAMPLES = "samples"                        # the field of a batch that says which sample a row is: dropout is keyed by it
IGNORE = -100                              # the label where nothing is asked; as in layers.loss, which needs torch
Row = dict[str, np.ndarray]
Fields = dict[str, tuple[str, int]]        # ragged field -> its stream and what pads it


class Corruption(Protocol):
    """From a sample to a row; see `objectives.base`."""
    fields: Fields
    terms: tuple[str, ...]
    fixed: bool

    def __call__(self, samples: Any, index: int, draw: np.random.Generator) -> Row: ...
    def counts(self, batch: Any) -> dict[str, int]: ...


def make_batch(samples: Samples, corruption: Corruption, groups: Sequence[Sequence[Pick]], draws: Draws, packed: int | None = None) -> Row:
    """The batch of these groups of samples: a group a row."""
    rows = [[make_row(samples, corruption, pick, draws) for pick in group] for group in groups]
    if packed is None:
        return collate([row for (row,) in rows], corruption.fields) | {SAMPLES: np.array([sample_number(pick) for (pick,) in groups])}
    batch = pack(rows, corruption.fields, packed)
    return batch | {SAMPLES: number_documents(groups, rows, corruption.fields)}


def sample_number(pick: Pick) -> int:
    """One whole number for a sample in an epoch, below 2 ** 56."""
    return (int(pick.epoch) & 0xFFFF) << 40 | int(pick.index)


def number_documents(groups: Sequence[Sequence[Pick]], rows: list[list[Row]], fields: Fields) -> np.ndarray:
    """(row, document): the sample of each document of a packed row, and which of the sample's documents it is; column 0 is padding."""
    lines = [[0, *(part << 56 | sample_number(pick) for pick, row in zip(group, parts, strict=True)
                   for part in range(count_documents(row, fields)))] for group, parts in zip(groups, rows, strict=True)]
    numbers = np.zeros((len(lines), max(map(len, lines))), np.int64)
    for line, found in zip(numbers, lines, strict=True):
        line[:len(found)] = found
    return numbers


def make_row(samples: Samples, corruption: Corruption, pick: Pick, draws: Draws) -> Row:
    try:
        return corruption(samples, pick.index, draws.at(0 if corruption.fixed else pick.epoch, pick.index))
    except Exception as error:
        raise ValueError(f"sample {pick.index} of epoch {pick.epoch} gives no row: {type(error).__name__}: {error}") from error


def collate(rows: list[Row], fields: Fields) -> Row:
    """A row a sample, padded to the longest. `<stream>_keep` (True: real) only where something is padded."""
    batch, bounds = lay([[row] for row in rows], fields)
    for stream, bound in bounds.items():
        ends = np.array(bound)[:, 1]
        if f"{stream}_keep" not in fields and ends.min() < ends.max():
            batch[f"{stream}_keep"] = np.arange(ends.max()) < ends[:, None]
    return batch


def pack(groups: list[list[Row]], fields: Fields, length: int) -> Row:
    """A row a group, its samples end to end. `<stream>_keep` numbers them 1, 2, 3, … in each row; 0 is padding.

    Rows are `length` wide, more only if samples turned out longer than their reader had said."""
    groups = [number(group, fields) for group in groups]
    return lay(groups, fields | {f"{stream}_keep": (stream, 0) for stream, _ in fields.values()}, length)[0]


def number(group: list[Row], fields: Fields) -> list[Row]:
    """The samples of a row with their numbers as `<stream>_keep`; a sample of several documents takes several numbers."""
    found, first = [], 1
    for row in group:
        keeps = {f"{stream}_keep": np.asarray(row.get(f"{stream}_keep", np.ones(len(row[name]), np.int64)))
                 for name, (stream, _) in fields.items()}
        found.append(row | {name: np.where(keep > 0, keep + first - 1, 0) for name, keep in keeps.items()})
        first += count_documents(row, fields)
    return found


def count_documents(row: Row, fields: Fields) -> int:
    """Of one sample: as many as its `<stream>_keep` numbers."""
    return max((int(row[f"{stream}_keep"].max(initial=0)) if f"{stream}_keep" in row else min(len(row[name]), 1)
                for name, (stream, _) in fields.items()), default=1)


def lay(groups: list[list[Row]], fields: Fields, width: int = 0) -> tuple[Row, dict[str, list[list[int]]]]:
    """The arrays, at least `width` wide, and where in each row the samples of each stream meet."""
    batch, bounds = {}, {stream: [[0, *accumulate(len(row[name]) for row in group)] for group in groups]
                         for name, (stream, _) in fields.items()}
    for name, (stream, pad) in fields.items():
        wide = max(width, *(bound[-1] for bound in bounds[stream]))
        batch[name] = out = np.full((len(groups), wide), pad, plain(groups[0][0][name].dtype))
        for line, group, bound in zip(out, groups, bounds[stream], strict=True):
            for row, start, stop in zip(group, bound, bound[1:], strict=False):
                assert len(row[name]) == stop - start, f"{name} has {len(row[name])} values, its stream {stream} {stop - start}"
                line[start:stop] = row[name]
    rows = [row for group in groups for row in group]
    for name in rows[0].keys() - fields.keys():
        stacked = np.stack([np.asarray(row[name]) for row in rows])
        batch[name] = stacked.astype(plain(stacked.dtype), copy=False)
    for name in [n for n in batch if n.startswith("labels") and batch[n].dtype == np.int64]:
        batch[f"{name}_at"] = np.flatnonzero(batch[name] != IGNORE)
    return batch, bounds


def plain(kind: np.dtype[Any]) -> np.dtype[Any]:
    """Whole numbers as torch's indices are, but pixels as bytes; fractions in single precision."""
    if kind == np.float64:
        return np.dtype(np.float32)
    return np.dtype(np.int64) if kind.kind in "iu" and kind != np.uint8 else kind


def real_tokens(batch: Row, fields: Fields) -> int:
    """Tokens of all streams without padding; rows, where there are none, as of images."""
    streams = {stream: name for name, (stream, _) in fields.items()}
    if not streams:
        return max(map(len, batch.values()))
    return sum(int(np.count_nonzero(batch.get(f"{stream}_keep", np.broadcast_to(True, batch[name].shape))))
               for stream, name in streams.items())


def to_torch(batch: Row) -> "dict[str, Tensor]":
    """The same memory."""
    import torch
    return {name: torch.from_numpy(array) for name, array in batch.items()}
