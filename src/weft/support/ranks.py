"""The ranks of a program: here one process; `training.parallel` has those of torchrun."""

import os
from collections.abc import Callable


class Ranks:
    """A single process, where every sum is its own."""

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank = rank
        self.size = size
        self.world = size  # number of processes, including those that read the same samples

    def sum(self, numbers: list[float]) -> list[float]:
        """Return the sums over all ranks."""
        return numbers

    def from_first(self, compute: Callable[[], str]) -> str:
        """Return on all ranks the text that the first rank computes, which may take long."""
        return compute()


def started_processes() -> int:
    """Return the number of processes that torchrun started; 1 without torchrun."""
    return int(os.environ.get("WORLD_SIZE", "1"))
