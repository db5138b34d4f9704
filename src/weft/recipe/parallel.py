"""How a run is spread over devices: which ranks repeat the data-parallel work, which share weights,
which share the layers.
"""

from typing import Literal

from ..spec import PositiveInt
from ..support.registry import choice


class ActivationCheckpointing:
    """Base of what is computed again in the backward pass instead of being stored."""


@choice
class CheckpointBlocks(ActivationCheckpointing):
    """Compute every `every`-th block again in the backward pass (Chen et al. 2016,
    arXiv:1604.06174); 1: all of them.
    """

    every: PositiveInt = 1


@choice
class SelectiveCheckpointing(ActivationCheckpointing):
    """Store the results of matrix products and of attention, and compute everything else of a block
    again (Korthikanti et al. 2022, arXiv:2205.05198, section 5).
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
    """

    replicate: PositiveInt | None = None  # copies of the sharded model; None: as many as fit
    shard: PositiveInt | Literal["all"] = 1  # "all": all ranks that `tensor` leaves
    tensor: PositiveInt = 1
    expert: PositiveInt = (
        1  # ranks of a tensor group that share the experts of a mixture; 1: each expert is split
    )

    def __post_init__(self) -> None:
        if self.expert not in (1, self.tensor):
            raise ValueError(
                f"expert = {self.expert}: experts are shared within a tensor group; use 1 or "
                f"tensor = {self.tensor}"
            )
        if self.shard == "all" and self.replicate not in (None, 1):
            raise ValueError(
                f"replicate = {self.replicate}: shard='all' leaves no ranks for copies; give shard "
                "a number"
            )

    def sizes(self, world: int) -> tuple[int, int, int]:
        """Return replicate, shard and tensor for a number of ranks; ValueError if they do not fit
        it.
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
                f"parallel: {grid} does not fit {world} ranks; start as many with torchrun "
                "--nproc-per-node N -m weft …, or change it with --set parallel.shard=…"
            )
        return replicate, shard, self.tensor

    @property
    def splits_weights(self) -> bool:
        """Whether a rank holds less than the whole model."""
        return self.shard != 1 or self.tensor != 1
