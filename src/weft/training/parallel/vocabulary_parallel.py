"""Vocabulary parallelism: split rows of the token table, columns of the logits, and their cross
entropy (Shoeybi et al. 2019, arXiv:1909.08053, section 3).
"""

from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard

from ...nn.heads import LMHeadLayer
from ...nn.kernels.cross_entropy import (
    SharedCrossEntropy,
    VocabularyPart,
    cross_entropy,
    pad_labels,
)
from ...nn.layers.embedding import TokenEmbedding
from ...nn.layers.sequence import HiddenStates
from ...tasks.base import Loss
from .tensor_group import WHOLE, chunk, contiguous_stride, enter_region, replace_forward, sum_parts


def split_vocabulary(loss: Loss, group: DeviceMesh) -> tuple[dict[Tensor, Shard], set[nn.Module]]:
    """Split token tables, LM heads and logit biases; return the split dimension of each tensor, and
    the modules whose gradients are partial sums.
    """
    placements: dict[Tensor, Shard] = {}
    partial_parts: set[nn.Module] = set()
    for part in loss.modules():
        if isinstance(part, TokenEmbedding):
            table = part.tokens or loss.model.source.tokens
            assert isinstance(table, nn.Embedding)
            wrap_embedding(part, table.num_embeddings, group)
            if part.tokens is not None:
                placements[part.tokens.weight] = Shard(0)
        elif isinstance(part, LMHeadLayer):
            wrap_lm_head(part, loss.model.spec.vocab_size, group)
            partial_parts |= set(part.modules())
            if part.out is not None:
                placements[part.out.weight] = Shard(0)
            if part.bias is not None:
                placements[part.bias] = Shard(0)
    return placements, partial_parts


def wrap_embedding(embedding: TokenEmbedding, vocab_size: int, group: DeviceMesh) -> None:
    """Split the rows of the table over ranks. The layer reads only the rows of the batch."""
    before = embedding.forward
    (first, _) = chunk(vocab_size, group)

    def forward(ids_BL: Tensor, part_VD: Tensor, *others: Any) -> HiddenStates:
        at_BL = ids_BL - first
        here_BL1 = ((at_BL >= 0) & (at_BL < len(part_VD)))[..., None]
        x_BLD = F.embedding(at_BL.clamp(0, len(part_VD) - 1), part_VD) * here_BL1
        x_TD = sum_parts(x_BLD, group).flatten(0, 1)
        at_BL = torch.arange(len(x_TD), device=x_TD.device).view_as(ids_BL)
        states: HiddenStates = before(at_BL, x_TD, *others)
        return states

    replace_forward(embedding, forward)


def wrap_lm_head(head: LMHeadLayer, vocab_size: int, group: DeviceMesh) -> None:
    """Split the columns of the logits over ranks; in training they stay split, for the loss."""
    before = head.forward

    def forward(sequence: HiddenStates, part_VD: Tensor) -> Tensor:
        x_BLD = enter_region(sequence.x_BLD, group)
        logits_BLV = before(replace(sequence, x_BLD=x_BLD), part_VD)
        shape = torch.Size((*logits_BLV.shape[:-1], vocab_size))
        columns = DTensor.from_local(
            logits_BLV,
            group,
            [Shard(logits_BLV.dim() - 1)],
            run_check=False,
            shape=shape,
            stride=contiguous_stride(shape),
        )
        return columns if head.training else columns.redistribute(placements=[WHOLE]).to_local()

    replace_forward(head, forward)


@cross_entropy.register(DTensor)
def shared_cross_entropy(logits_TV: DTensor, label_T: Tensor, smoothing: float = 0.0) -> Tensor:
    """Return the cross entropy of logits whose columns are split over ranks."""
    group = logits_TV.device_mesh
    (placement,) = logits_TV.placements
    assert placement == Shard(1), placement
    first, _ = chunk(logits_TV.shape[1], group)

    def reduce(x: Tensor, op: Any) -> Tensor:
        dist.all_reduce(x, op=op, group=group.get_group())
        return x

    part = VocabularyPart(
        first,
        logits_TV.shape[1],
        partial(reduce, op=dist.ReduceOp.MAX),
        partial(reduce, op=dist.ReduceOp.SUM),
    )
    local_TV = logits_TV.to_local()
    loss: Tensor = SharedCrossEntropy.apply(
        local_TV, pad_labels(local_TV, label_T), smoothing, part
    )
    return loss
