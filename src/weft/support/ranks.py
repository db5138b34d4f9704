"""Who shares the work. One process here; `train.parallel` has the ranks that torchrun starts."""

import os
from collections.abc import Callable


class Ranks:
    """One process alone: every sum is its own."""

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank = rank
        self.size = size
        self.world = size  # all processes, those included that read the same samples

    def sum(self, numbers: list[float]) -> list[float]:
        """Return the sums over all ranks."""
        return numbers

    def from_first(self, compute: Callable[[], str]) -> str:
        """Return on all ranks the text that the first one computes, which may take long."""
        return compute()


def started_processes() -> int:
    """Return how many processes torchrun has started for this program; 1 without torchrun."""
    return int(os.environ.get("WORLD_SIZE", "1"))
