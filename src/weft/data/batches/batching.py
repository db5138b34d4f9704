"""Batch planning: the samples of each step as a pure function of the position, so that resuming
needs one number. The cost is one pool of samples, whatever the size of the data.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple, Protocol, TypeVar

import numpy as np

from ... import recipe as R
from ...support.order import Order, permute
from ...support.registry import implementation
from .mixture import MixtureSamples
from .samples import Samples

T = TypeVar("T")


class SampleIndex(NamedTuple):
    """A sample in an epoch."""

    epoch: int
    index: int  # type: ignore[assignment]   # hides the unused tuple.index


class StepPlan(NamedTuple):
    """The samples of one step over all ranks; the samples of a group share a row. The next step
    starts at `after`.
    """

    position: int
    next_position: int
    rows: list[list[SampleIndex]]


class BatchPlanner(Protocol):
    packed: int | None  # the length of rows of concatenated samples

    def at(self, position: int) -> StepPlan: ...


def build_planner(
    batch: R.Batching, samples: Samples, seed: int, length: int | None = None
) -> BatchPlanner:
    """Return the planner of a batching; `length` overrides its row length."""
    planner: BatchPlanner = implementation(batch)(batch, samples, seed, length or batch.length)
    return planner


def build_fixed_planner(
    batch: R.FixedBatch, samples: Samples, seed: int, length: int
) -> BatchPlanner:
    if batch.sort_pool is None:
        return FixedPlanner(sample_order(samples, seed, batch.repeats), batch.size)
    return PoolPlanner(samples, seed, length, batch.sort_pool, GroupByLength(batch.size))


def build_packed_planner(
    batch: R.PackedBatch, samples: Samples, seed: int, length: int
) -> BatchPlanner:
    rows = PackRows(batch.size, length)
    return PoolPlanner(samples, seed, length, batch.pack_pool, rows, packed=length)


def build_token_planner(
    batch: R.TokenBudget, samples: Samples, seed: int, length: int
) -> BatchPlanner:
    if length > batch.tokens:
        raise ValueError(
            f"TokenBudget.tokens = {batch.tokens} is less than length = {length}; give more tokens "
            "or a shorter length"
        )
    return PoolPlanner(samples, seed, length, batch.sort_pool, SortByLength(batch.tokens))


def sample_order(samples: Samples, seed: int, repeats: int = 1) -> Order:
    if not isinstance(samples, MixtureSamples):
        return Order(len(samples), seed, repeats)
    if repeats > 1:
        raise ValueError(f"FixedBatch.repeats = {repeats} is not supported for mixtures; use 1")
    return samples.order(seed)


class FixedPlanner:
    """`count` samples per step, in order; a step may end one epoch and begin the next."""

    packed: int | None = None

    def __init__(self, order: Order, count: int) -> None:
        self.order = order
        self.count = count

    def at(self, position: int) -> StepPlan:
        epochs, indices = self.order.at(position, self.count)
        return StepPlan(
            position,
            position + self.count,
            [[SampleIndex(e, i)] for e, i in zip(epochs.tolist(), indices.tolist(), strict=True)],
        )


Batches = list[list[list[int]]]  # batches of rows of places in the pool


class PoolArrangement(Protocol):
    def __call__(self, lengths: np.ndarray, seed: int, *turn: int) -> Batches: ...


class Pool(NamedTuple):
    """A range of an epoch with its rows in reading order."""

    start: int  # its first position
    rows: list[list[SampleIndex]]
    batch_ends: list[int]  # in rows
    row_ends: list[int]  # in samples


class PoolPlanner:
    """Divides the order into pools of samples, never across epochs, and arranges each pool. The
    position advances through the arranged pools.
    """

    def __init__(
        self,
        samples: Samples,
        seed: int,
        length: int,
        pool: int,
        arrange: PoolArrangement,
        packed: int | None = None,
    ) -> None:
        self.samples = samples
        self.seed = seed
        self.length = length
        self.size = pool
        self.arrange = arrange
        self.packed = packed
        self.order = sample_order(samples, seed)
        self.pool: Pool | None = None

    def at(self, position: int) -> StepPlan:
        """Return the rest of the batch that contains `position`: all of it after a whole step."""
        start = position - position % self.order.n % self.size
        if self.pool is None or self.pool.start != start:
            self.pool = self.work_out(start)
        pool = self.pool
        within = position - start
        row = bisect_right(pool.row_ends, within)
        end = pool.batch_ends[bisect_right(pool.batch_ends, row)]
        rows = pool.rows[row:end]
        read = within - (pool.row_ends[row - 1] if row else 0)
        return StepPlan(position, start + pool.row_ends[end - 1], [rows[0][read:], *rows[1:]])

    def work_out(self, start: int) -> Pool:
        epoch, first = divmod(start, self.order.n)
        epochs, indices = self.order.at(start, min(self.size, self.order.n - first))
        lengths = np.clip(self.samples.lengths(indices), 1, self.length)
        batches = self.arrange(lengths, self.seed, epoch, first)
        picks = [SampleIndex(e, i) for e, i in zip(epochs.tolist(), indices.tolist(), strict=True)]
        rows = [[picks[place] for place in row] for batch in batches for row in batch]
        return Pool(start, rows, cumulative_lengths(batches), cumulative_lengths(rows))


class SortByLength:
    """Return batches of samples of similar length, at most `tokens` with padding: as few batches as
    possible, all about equally full.
    """

    def __init__(self, tokens: int) -> None:
        self.tokens = tokens

    def __call__(self, lengths: np.ndarray, seed: int, *turn: int) -> Batches:
        order = (-lengths).argsort(kind="stable")
        longest = lengths[order].tolist()
        few = len(batch_starts(longest, self.tokens))
        low = longest[0]
        high = self.tokens
        while low < high:  # the smallest budget that needs no more batches
            middle = (low + high) // 2
            if len(batch_starts(longest, middle)) <= few:
                high = middle
            else:
                low = middle + 1
        starts = batch_starts(longest, high)
        batches = np.split(order, starts[1:])
        return [
            [[place] for place in batches[b].tolist()]
            for b in permute(np.arange(few), few, seed, *turn)
        ]


class GroupByLength:
    """Return batches of `count` samples of similar length."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __call__(self, lengths: np.ndarray, seed: int, *turn: int) -> Batches:
        order = (-lengths).argsort(kind="stable")
        batches = np.split(order, range(self.count, len(order), self.count))
        return [
            [[place] for place in batches[b].tolist()]
            for b in permute(np.arange(len(batches)), len(batches), seed, *turn)
        ]


def batch_starts(lengths: list[int], tokens: int) -> list[int]:
    """Return the starts of batches, longest samples first. Each batch contains as many samples as
    fit at the length of its first one, rounded to a few sizes.
    """
    starts = []
    at = 0
    while at < len(lengths):
        starts.append(at)
        rows = tokens // lengths[at]
        at += rows - rows % shape_granularity(rows)
    return starts


def shape_granularity(count: int) -> int:
    """Return the rounding step that gives sixteen sizes per octave: a CPU library prepares every
    new shape of a matrix product and caches it.
    """
    return 1 << max(0, count.bit_length() - 5)


class PackRows:
    """Return batches of about `count` rows, with samples packed into rows of `length`, longest
    first, each into the fullest row that fits (best fit decreasing: Johnson 1974, "Fast Algorithms
    for Bin Packing", section 2).
    """

    def __init__(self, count: int, length: int) -> None:
        self.count = count
        self.length = length

    def __call__(self, lengths: np.ndarray, seed: int, *turn: int) -> Batches:
        rows = best_fit_decreasing(lengths, self.length)
        shuffled = [rows[r] for r in permute(np.arange(len(rows)), len(rows), seed, *turn)]
        batches = max(1, round(len(rows) / self.count))
        return [list(slice_of_rank(shuffled, b, batches)) for b in range(batches)]


def best_fit_decreasing(lengths: np.ndarray, length: int) -> list[list[int]]:
    rows: list[list[int]] = []
    # Rows by the room that they have left
    by_room: list[list[int]] = [[] for _ in range(length + 1)]
    rooms = 0  # bit r: some row has room r
    for place in (-lengths).argsort(kind="stable").tolist():
        size = int(lengths[place])
        fitting = rooms >> size
        if fitting:
            room = size + (fitting & -fitting).bit_length() - 1
            row = by_room[room].pop()
            rooms ^= (not by_room[room]) << room
            rows[row].append(place)
        else:
            room = length
            row = len(rows)
            rows.append([place])
        by_room[room - size].append(row)
        rooms |= 1 << (room - size)
    return rows


def cumulative_lengths(parts: list[list[T]]) -> list[int]:
    return list(accumulate(map(len, parts)))


def slice_of_rank(rows: Sequence[T], rank: int, ranks: int) -> Sequence[T]:
    """Return a rank's slice; sizes differ by at most one. Also used for other parts, such as
    micro-batches.
    """
    return rows[len(rows) * rank // ranks : len(rows) * (rank + 1) // ranks]


def evaluation_steps(n: int, rows: int, rank: int = 0, ranks: int = 1) -> Iterator[StepPlan]:
    """Yield steps that read every sample once, in order, `rows` at a time per rank; every rank has
    as many steps, the last possibly without rows.
    """
    for start in range(0, n, rows * ranks):
        stop = min(start + rows * ranks, n)
        yield StepPlan(
            start,
            stop,
            [[SampleIndex(0, i)] for i in slice_of_rank(range(start, stop), rank, ranks)],
        )
