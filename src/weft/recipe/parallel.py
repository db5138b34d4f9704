"""Parallel training: data-parallel replicas, sharded weights, split layers, and activation
checkpointing.
"""

from typing import Literal

from ..spec import PositiveInt
from ..support.registry import choice


class ActivationCheckpointing:
    """Base of choices of activations that the backward pass recomputes instead of storing."""


@choice
class CheckpointBlocks(ActivationCheckpointing):
    """Recompute whole blocks in the backward pass (Chen et al. 2016, arXiv:1604.06174).

    Args:
        every: recompute every n-th block (default: 1, all blocks).
    """

    every: PositiveInt = 1


@choice
class SelectiveCheckpointing(ActivationCheckpointing):
    """Store the results of matrix products and attention; recompute the rest of a block
    (Korthikanti et al. 2022, arXiv:2205.05198, section 5).
    """


@choice
class Parallel:
    """A grid of replicate × shard × tensor ranks. Experimental: tested with processes on one CPU
    machine, never run on a GPU.

    Ranks of one `tensor` group read the same samples and compute parts of every layer (Shoeybi et
    al. 2019, arXiv:1909.08053), with the sequence split between the layers (arXiv:2205.05198) and
    the loss split over the vocabulary. Ranks of one `shard` group keep parts of weights, gradients
    and optimiser state, and gather one block at a time (ZeRO, arXiv:1910.02054; FSDP,
    arXiv:2304.11277).

    Args:
        replicate: the number of replicas of the sharded model (default: ranks / (shard × tensor)).
        shard: the ranks that share weights; "all": ranks / tensor (default: 1).
        tensor: the ranks that split each layer (default: 1).
        expert: the ranks of a tensor group that distribute the experts of a mixture, equal to
            `tensor`; 1 splits each expert instead (default: 1).
    """

    replicate: PositiveInt | None = None
    shard: PositiveInt | Literal["all"] = 1
    tensor: PositiveInt = 1
    expert: PositiveInt = 1

    def __post_init__(self) -> None:
        if self.expert not in (1, self.tensor):
            raise ValueError(
                f"parallel.expert = {self.expert} must be 1 or parallel.tensor = {self.tensor}; "
                "use "
                "one of them"
            )
        if self.shard == "all" and self.replicate not in (None, 1):
            raise ValueError(
                f"parallel.replicate = {self.replicate} cannot be combined with shard='all'; give "
                "shard a number or use replicate=1"
            )

    def sizes(self, world: int) -> tuple[int, int, int]:
        """Return replicate, shard and tensor for a number of ranks.

        Args:
            world: the number of ranks.

        Raises:
            ValueError: if the grid does not fit the number of ranks.
        """
        group_size = self.tensor * (1 if self.shard == "all" else self.shard)
        left, rest = divmod(world, group_size)
        shard, replicate = (left, 1) if self.shard == "all" else (self.shard, left)
        if rest or not left or self.replicate not in (None, replicate):
            grid = " × ".join(
                f"{name} {value}"
                for name, value in (
                    ("replicate", self.replicate),
                    ("shard", self.shard),
                    ("tensor", self.tensor),
                )
                if value is not None
            )
            raise ValueError(
                f"parallel: {grid} does not fit {world} ranks; start a matching number with "
                "torchrun --nproc-per-node N -m weft …, or change it with --set parallel.shard=…"
            )
        return replicate, shard, self.tensor

    @property
    def splits_weights(self) -> bool:
        """Whether a rank holds less than the whole model."""
        return self.shard != 1 or self.tensor != 1
