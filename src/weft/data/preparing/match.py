"""Comparison of rows: a row is dropped if an earlier one has one of its keys. Each task reads one
range of hashes from the keys of all pieces, so that memory depends on the range, not on the data.

A key takes 21 bytes on disk and MEMORY_PER_KEY bytes in memory: a billion documents with one key
each take 21 GB and 128 ranges.
"""

from collections.abc import Callable
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np

from ...support.addresses import Location, locate
from ...support.storage import read_range, write_atomically
from .drop_table import table_path
from .jobs import Tick, WorkerProgress
from .scan import BUCKETS, KEY

MATCH_BYTES = 1 << 30  # of memory per range of hashes, about
MEMORY_PER_KEY = 96
DUPLICATE = np.dtype([("piece", "<u4"), ("row", "<u4"), ("step", "u1")])
OFFSET = 4 * (BUCKETS + 1)  # of the keys in their file
DIGEST = sha256().digest_size


class MatchJob(NamedTuple):
    """The settings of all ranges."""

    folder: str  # of the split
    pieces: int

    def open(self) -> Callable[[Any, Tick], None]:
        return self.match

    def match(self, task: Any, tick: Tick) -> None:
        """Write the duplicates of one range of buckets, after the fingerprint of what they were
        found in."""
        number, first, last, fingerprint = task
        folder = locate(self.folder)
        slices = [
            read_keys(table_path(folder, n, ".keys"), first, last) for n in range(self.pieces)
        ]
        duplicates = find_duplicates(slices)
        content = bytes.fromhex(fingerprint) + duplicates.tobytes()
        write_atomically(table_path(folder, number, ".match"), content)
        tick(WorkerProgress(sum(map(len, slices)), 0.0))


def ranges(keys: int) -> list[tuple[int, int]]:
    """Divide the buckets into ranges that each fit in memory; a power of two of them."""
    count = 1
    while count < BUCKETS and keys * MEMORY_PER_KEY > count * MATCH_BYTES:
        count *= 2
    size = BUCKETS // count
    return [(first, first + size) for first in range(0, BUCKETS, size)]


def count_keys(path: Location) -> int:
    return int(np.frombuffer(read_range(path, OFFSET - 4, OFFSET), "<u4")[0])


def read_keys(path: Location, first: int, last: int) -> np.ndarray:
    """Return the keys of a piece in buckets [first, last), in the order of the rows within each
    bucket."""
    begin, end = np.frombuffer(read_range(path, 4 * first, 4 * last + 4), "<u4")[[0, -1]].tolist()
    where = (OFFSET + begin * KEY.itemsize, OFFSET + end * KEY.itemsize)
    return np.frombuffer(read_range(path, *where), KEY)


def find_duplicates(slices: list[np.ndarray]) -> np.ndarray:
    """Return the rows of which an earlier row has a key, in order, each with the first filter that
    says so. The slices are those of the pieces in order; the sort is stable, so that of equal keys
    the earliest comes first."""
    keys = np.concatenate([np.empty(0, KEY), *slices])
    piece = np.repeat(np.arange(len(slices), dtype=np.uint32), [len(part) for part in slices])
    order = np.lexsort((keys["low"], keys["high"]))
    keys = keys[order]
    piece = piece[order]
    is_new = np.ones(len(keys), bool)
    is_new[1:] = (keys["high"][1:] != keys["high"][:-1]) | (keys["low"][1:] != keys["low"][:-1])
    first = np.flatnonzero(is_new)[np.cumsum(is_new) - 1] if len(keys) else order
    later = (piece != piece[first]) | (keys["row"] != keys["row"][first])
    place = piece[later].astype(np.uint64) << np.uint64(32) | keys["row"][later]
    step = keys["step"][later]
    by_place = np.lexsort((step, place))
    place = place[by_place]
    step = step[by_place]
    once = np.diff(place, prepend=place[:1] + np.uint64(1)) != 0  # the first filter of each row
    duplicates = np.empty(int(once.sum()), DUPLICATE)
    duplicates["piece"] = place[once] >> np.uint64(32)
    duplicates["row"] = place[once] & np.uint64(0xFFFFFFFF)
    duplicates["step"] = step[once]
    return duplicates
