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
from ..data.parent import die_with_parent
from .heartbeat import heartbeat


class World:
    """One process, or one of those that torchrun started."""

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank, self.size = rank, size
        here = int(os.environ.get("LOCAL_RANK", "0"))
        self.device = torch.device("cuda", here) if torch.cuda.is_available() else torch.device("cpu")

    def wrap(self, module: nn.Module) -> nn.Module:
        """The module whose gradients are the mean over the ranks."""
        return module if self.size == 1 else DistributedDataParallel(module)

    @contextmanager
    def alone(self, module: nn.Module, yes: bool) -> Iterator[None]:
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
        found: list[float] = total.tolist()
        return found

    def wait(self) -> None:
        if self.size > 1:
            dist.barrier()


@contextmanager
def world(timeouts: R.Timeouts = R.Timeouts()) -> Iterator[World]:
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield World()
        return
    if "TORCHELASTIC_RUN_ID" in os.environ:
        die_with_parent()                  # a killed torchrun leaves no rank behind
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    limit = timedelta(seconds=timeouts.collective)
    store, rank, size = next(iter(rendezvous("env://", timeout=limit)))
    with heartbeat(store, rank, size, timeouts.heartbeat):
        dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo", timeout=limit, store=store, rank=rank, world_size=size)
        try:
            yield World(rank, size)
        finally:
            dist.destroy_process_group()
