"""Functions of a model whose weights are on several ranks, such as generation: every rank may have other inputs, and more or fewer of them."""

from collections.abc import Callable
from typing import Any, TypeVar

from torch import nn
from torch.distributed.fsdp import FSDPModule

from ..model.cache import KVCache
from ..model.model import Model
from ..ranks import Ranks
from ..tasks.base import Loss
from .parallel import DistributedRanks

T = TypeVar("T")


def run_on_sharded_model(
    loss: Loss, ranks: DistributedRanks, function: Callable[[Model, Ranks], T]
) -> T:
    """Return what a function of the model returns on this rank. All ranks call it together; it may generate, embed or classify.

    Args:
        loss: the task's module, on a grid of ranks or not.
        ranks: of this process. Those of one tensor group must have the same inputs.
        function: what to do with the model, in evaluation mode. The ranks that it is given are those to sum over inside it.
    """
    turns = StackTurns(loss.model, ranks)
    loss.eval()

    def work(model: Model) -> T:
        # Weights that are gathered for the first time in inference mode could never be trained.
        for stack in turns.stacks:
            gather_blocks(stack)
        hooks = [
            stack.register_forward_pre_hook(turns.wait_for(i))
            for i, stack in enumerate(turns.stacks)
        ]
        try:
            result = function(model, RanksBetweenTurns(turns))
            turns.take(None)
        finally:
            for hook in hooks:
                hook.remove()
        return result

    if ranks.tensor_size == 1:
        return loss.with_model(work)
    vars(loss.model)["new_cache"] = split_cache(loss.model, ranks.tensor_size)
    try:
        return loss.with_model(work)
    finally:
        del vars(loss.model)["new_cache"]


class StackTurns:
    """Ranks that gather weights from each other run one stack at a time. Each says which it needs next; those that need another one, or
    have nothing left to do, gather its weights with the others and compute nothing."""

    def __init__(self, model: Model, ranks: DistributedRanks) -> None:
        self.ranks = ranks
        self.stacks = [stack for stack in (model.encoder, model.decoder) if stack is not None]

    def wait_for(self, stack: int) -> Callable[..., None]:
        def hook(*_: Any) -> None:
            self.take(stack)

        return hook

    def take(self, needed: int | None) -> None:
        """Return when it is the turn of the stack that this rank needs; None: when no rank needs any."""
        while True:
            wanted = self.ranks.sum([float(i == needed) for i in range(len(self.stacks))])
            turn = next((i for i, count in enumerate(wanted) if count), None)
            if turn == needed:
                return
            assert turn is not None
            gather_blocks(self.stacks[turn])


class RanksBetweenTurns(Ranks):
    """The same ranks, whose sums wait until no rank needs a stack."""

    def __init__(self, turns: StackTurns) -> None:
        super().__init__(turns.ranks.rank, turns.ranks.size)
        self.turns, self.world = turns, turns.ranks.world

    def sum(self, numbers: list[float]) -> list[float]:
        self.turns.take(None)
        return self.turns.ranks.sum(numbers)


def gather_blocks(stack: nn.Module) -> None:
    """Gather the weights of every block as its forward pass does, and let them go."""
    for block in stack.modules():
        if isinstance(block, FSDPModule):
            block.unshard()
            block.reshard()


def split_cache(model: Model, tensor_size: int) -> Callable[[int, int], KVCache]:
    """Return what makes a cache for the keys and values of this rank's heads."""

    def new_cache(batch: int, capacity: int) -> KVCache:
        cache = Model.new_cache(model, batch, capacity)
        for block in cache.blocks:
            heads = max(block.keys_BGMK.shape[1] // tensor_size, 1)
            block.keys_BGMK = block.keys_BGMK[:, :heads].contiguous()
            block.values_BGMK = block.values_BGMK[:, :heads].contiguous()
        return cache

    return new_cache
