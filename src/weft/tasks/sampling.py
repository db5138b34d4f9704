"""Random partitions and spans, without a loop over tokens."""

import numpy as np


def random_partition(rng: np.random.Generator, total: int, count: int) -> np.ndarray:
    """Return `total` as a sum of `count` integers of at least 1, uniformly among all such sums."""
    if count == 1:
        return np.array([total])
    cuts = np.sort(rng.choice(total - 1, count - 1, replace=False, shuffle=False)) + 1
    return np.diff(cuts, prepend=0, append=total)


def random_span_starts(rng: np.random.Generator, lengths: np.ndarray, capacity: int) -> np.ndarray:
    """Return starts of spans of these lengths, in this order and without overlap, in `capacity`
    positions, uniformly among all such choices.
    """
    before = np.cumsum(lengths) - lengths
    free = capacity - int(lengths.sum())
    slots = np.sort(rng.choice(free + len(lengths), len(lengths), replace=False, shuffle=False))
    starts: np.ndarray = slots - np.arange(len(lengths)) + before
    return starts


def count_for_budget(rng: np.random.Generator, lengths: np.ndarray, budget: float) -> int:
    """Return how many of the first `lengths` to take so that their sum is `budget` in expectation:
    the one that would exceed it is taken with the matching probability.
    """
    total = np.cumsum(lengths)
    full = int(np.searchsorted(total, budget, side="left"))
    if full == len(lengths):
        return full
    rest = budget - (total[full - 1] if full else 0)
    return full + int(rng.random() * lengths[full] < rest)


def span_indices(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return start, start + 1, … of every span, concatenated."""
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()))
