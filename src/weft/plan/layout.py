"""Layout of a step over devices: the grid, the micro-batch size, activation checkpointing."""

from dataclasses import dataclass
from math import ceil

from .recipe_workload import Workload


@dataclass(frozen=True)
class Layout:
    """A grid of replicate × shard × tensor devices, as `recipe.Parallel` arranges them.

    Attributes:
        tensor: devices that compute parts of every layer of the same rows.
        shard: devices that keep parts of weights, gradients and optimiser state.
        replicate: copies of the sharded model.
        micro_batch: rows of one forward pass on one device.
        checkpointing: whether every block is recomputed in the backward pass.
    """

    tensor: int = 1
    shard: int = 1
    replicate: int = 1
    micro_batch: int = 1
    checkpointing: bool = False

    @property
    def devices(self) -> int:
        return self.tensor * self.shard * self.replicate

    @property
    def readers(self) -> int:
        """The number of readers of different rows: a tensor group counts once."""
        return self.shard * self.replicate

    @property
    def splits_weights(self) -> bool:
        return self.shard * self.tensor > 1

    def micro_batches(self, workload: Workload) -> int:
        """Forward passes per step."""
        return ceil(workload.rows / (self.readers * self.micro_batch))

    def describe(self) -> str:
        parts = [("replicate", self.replicate), ("shard", self.shard), ("tensor", self.tensor)]
        named = [f"{name} {size:,}" for name, size in parts if size > 1]
        return " × ".join(named) or "one device"
