"""Bit-identical training on 1, 2, 4, 8, … ranks: gradients are summed in one binary tree over the
micro-batches of a step, independent of their assignment to ranks.

Addition of floats is not associative, so the sum of an all-reduce depends on the number of ranks.
Here the leaves of the tree are the micro-batches of the whole step, which do not depend on the
ranks; each rank has a subtree, and the levels above are summed between pairs of ranks. A subtree
without micro-batches is skipped, not added as zeros: -0.0 + 0.0 has other bits.
"""

import torch
import torch.distributed as dist
from torch import Tensor

from ...data.batches.loader import Groups, RankBatch, split_micro_batches
from ...nn.layers.mixture_of_experts import MixtureOfExpertsLayer
from ..loop import Trainer


class TreeSum:
    """Sums of lists of tensors in the order of a binary tree, with one partial sum per level in
    memory.
    """

    def __init__(self) -> None:
        self.partial_sums: list[tuple[int, list[Tensor]]] = []  # (level, sum of 2^level leaves)

    def add(self, leaf: list[Tensor]) -> None:
        level = 0
        while self.partial_sums and self.partial_sums[-1][0] == level:
            leaf = add_lists(self.partial_sums.pop()[1], leaf)
            level += 1
        self.partial_sums.append((level, leaf))

    def total(self) -> list[Tensor] | None:
        """Return the sum of all leaves; None without any."""
        total = None
        while self.partial_sums:
            _, before = self.partial_sums.pop()
            total = before if total is None else add_lists(before, total)
        return total


def add_lists(left: list[Tensor], right: list[Tensor]) -> list[Tensor]:
    torch._foreach_add_(left, right)
    return left


def sum_over_ranks(subtree: list[Tensor] | None, like: list[Tensor], leaves: int) -> list[Tensor]:
    """Return the sum of the whole tree on every rank.

    Args:
        subtree: the sum of this rank's leaves; None if it has none.
        like: tensors of the same shapes.
        leaves: number of leaves of all ranks.
    """
    rank = dist.get_rank()
    ranks = dist.get_world_size()
    size = subtree_size(leaves, ranks)
    here = None if subtree is None else flatten(subtree)
    room = flatten([torch.empty_like(t) for t in like])
    distance = 1
    while distance < ranks:
        partner = rank ^ distance
        partner_first = partner // distance * distance * size  # the first leaf of its subtree
        operations = []
        if here is not None:
            operations += [dist.P2POp(dist.isend, buffer, partner) for buffer in here]
        if partner_first < leaves:
            operations += [dist.P2POp(dist.irecv, buffer, partner) for buffer in room]
        for request in dist.batch_isend_irecv(operations) if operations else ():
            request.wait()
        if here is None:
            here = [buffer.clone() for buffer in room] if partner_first < leaves else None
        elif partner_first < leaves:
            here = [a + b if rank < partner else b + a for a, b in zip(here, room, strict=True)]
        distance *= 2
    assert here is not None
    return unflatten(here, like)


def flatten(tensors: list[Tensor]) -> list[Tensor]:
    """One buffer per data type."""
    dtypes = list(dict.fromkeys(t.dtype for t in tensors))
    return [torch.cat([t.flatten() for t in tensors if t.dtype == dtype]) for dtype in dtypes]


def unflatten(buffers: list[Tensor], like: list[Tensor]) -> list[Tensor]:
    by_dtype = {buffer.dtype: buffer for buffer in buffers}
    at = dict.fromkeys(by_dtype, 0)
    tensors = []
    for t in like:
        begin = at[t.dtype]
        tensors.append(by_dtype[t.dtype][begin : begin + t.numel()].view(t.shape))
        at[t.dtype] += t.numel()
    return tensors


def subtree_size(leaves: int, ranks: int) -> int:
    """Return how many leaves of a binary tree each rank has, of which the last ones may be missing:
    a power of two."""
    if ranks & (ranks - 1):
        raise ValueError(
            f"exact = True needs 1, 2, 4, 8, … ranks, not {ranks}; start torchrun with one of "
            "these numbers"
        )
    return int(max(1 << max(leaves - 1, 0).bit_length(), ranks) // ranks)


def split_as_tree(
    rows: Groups, micro_batch_size: int | None, rank: int, ranks: int
) -> list[Groups]:
    """The micro-batches of a rank's subtree; the step is cut without regard to ranks."""
    leaves = split_micro_batches(rows, micro_batch_size)
    size = subtree_size(len(leaves), ranks)
    return leaves[rank * size : (rank + 1) * size]


class ExactTrainer(Trainer):
    """A trainer whose gradients are summed in the order of a tree, whatever the number of ranks."""

    split_rows = staticmethod(split_as_tree)
    averages_gradients = False

    def sum_gradients(self, work: RankBatch, counts: dict[str, float]) -> list[float]:
        parameters = list(self.optimiser.parameters.values())
        tree = TreeSum()
        for i, batch in enumerate(work.batches if work.weight else ()):
            self.loss.expert_load = []
            total = self.backward_batch(i, batch, counts, 1.0)
            load = [load_E.to(total.dtype) for load_E in self.loss.expert_load]
            gradients = [p.grad if p.grad is not None else torch.zeros_like(p) for p in parameters]
            tree.add([torch.cat([total, *load]), *gradients])
            self.optimiser.zero_grad()
        sums = tree.total()
        if self.ranks.world > 1:
            layers = (m for m in self.loss.modules() if isinstance(m, MixtureOfExpertsLayer))
            length = len(self.loss.weights) + sum(layer.s.experts for layer in layers)
            total = torch.empty(length, dtype=self.sum_dtype, device=self.ranks.device)
            leaves = -(-len(work.step.rows) // (self.options.micro_batch_size or 1))
            sums = sum_over_ranks(sums, [total, *parameters], leaves)
        assert sums is not None
        self.seed(0)  # a rank without micro-batches ends in the random state of the others
        for parameter, gradient in zip(parameters, sums[1:], strict=True):
            parameter.grad = gradient
        numbers: list[float] = sums[0].tolist()
        return numbers
