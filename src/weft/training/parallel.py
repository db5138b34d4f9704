"""Ranks: the only place of the loop that knows of others. Sums go through one call, gradients through PyTorch's own engine."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

from .. import recipe as R
from ..kernels.devices import resolve_device
from ..processes import die_with_parent
from ..ranks import Ranks
from .heartbeat import heartbeat


class DistributedRanks(Ranks):
    """One process, or one of those that torchrun started."""

    def __init__(self, rank: int = 0, size: int = 1, device: str | torch.device = "auto") -> None:
        super().__init__(rank, size)
        self.device = resolve_device(device)

    def wrap(self, module: nn.Module) -> nn.Module:
        """The module whose gradients are the mean over the ranks."""
        return module if self.size == 1 else DistributedDataParallel(module)

    @contextmanager
    def no_sync(self, module: nn.Module, yes: bool) -> Iterator[None]:
        """Gradients stay here: there are more micro-batches to come."""
        if yes and isinstance(module, DistributedDataParallel):
            with module.no_sync():
                yield
        else:
            yield

    def sum(self, numbers: list[float]) -> list[float]:
        if self.size == 1:
            return numbers
        total = torch.tensor(numbers, dtype=torch.float64, device=self.device)
        dist.all_reduce(total)
        summed: list[float] = total.tolist()
        return summed

    def barrier(self) -> None:
        if self.size > 1:
            dist.barrier()


@contextmanager
def init_ranks(
    timeouts: R.Timeouts = R.Timeouts(), device: str = "auto"
) -> Iterator[DistributedRanks]:
    """Join the process group that torchrun describes, if any.

    Args:
        timeouts: seconds until a rank gives up.
        device: what `resolve_device` takes; "cuda" is the GPU of the local rank.
    """
    rank_device = resolve_device(device)
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield DistributedRanks(device=rank_device)
        return
    if "TORCHELASTIC_RUN_ID" in os.environ:
        die_with_parent()  # a killed torchrun leaves no rank running
    if rank_device.type == "cuda":
        torch.cuda.set_device(rank_device)
    limit = timedelta(seconds=timeouts.collective)
    store, rank, size = next(iter(rendezvous("env://", timeout=limit)))
    with heartbeat(store, rank, size, timeouts.heartbeat):
        dist.init_process_group(
            "nccl" if rank_device.type == "cuda" else "gloo",
            timeout=limit,
            store=store,
            rank=rank,
            world_size=size,
        )
        try:
            yield DistributedRanks(rank, size, rank_device)
        finally:
            dist.destroy_process_group()
