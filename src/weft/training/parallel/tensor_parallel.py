"""Tensor parallelism (Shoeybi et al. 2019, arXiv:1909.08053), sequence parallelism (Korthikanti et
al. 2022, arXiv:2205.05198) and experts on several ranks, applied from outside of the layers.

Parameters are DTensors; during its forward, a layer sees the local parts as plain tensors, so its
code and kernels are the same as in one process. A region (an attention, a feed-forward, a mixture,
the LM head) reads the same values on all ranks of the group and computes a partial sum or some
columns, so every gradient inside it is a partial sum. Between regions, each token is on one rank.
"""

from collections.abc import Collection
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Shard

from ... import spec as S
from ...nn.block import BlockLayer, BranchLayer
from ...nn.detection import DetectionDecoder
from ...nn.kernels.keyed_random import CurrentKeys, use_keys, use_part
from ...nn.layers.attention import AttentionContext, AttentionLayer
from ...nn.layers.feedforward import FeedForward
from ...nn.layers.images.conditional_attention import (
    AnchorContext,
    ConditionalAttention,
    ProjectedAttention,
)
from ...nn.layers.lora import LoRALinear
from ...nn.layers.mixture_of_experts import ExpertLinear, MixtureOfExpertsLayer
from ...nn.layers.roles import INPUT, OUTPUT, Role, parameter_facts
from ...nn.stack import StackLayer
from ...tasks.base import Loss
from .local_parameters import distribute, wrap_unit
from .tensor_group import (
    ScaledGradient,
    chunk,
    enter_region,
    join_sequence,
    replace_forward,
    split_sequence,
    sum_parts,
    wrap_output,
)
from .vocabulary_parallel import split_vocabulary

# Other layers, such as user-defined ones, are replicated.
ATTENTIONS = (AttentionLayer, ProjectedAttention, ConditionalAttention)

# Placement of parameters


def shard_attention(layer: AttentionLayer, group: DeviceMesh) -> dict[Tensor, Shard]:
    """Split the heads: the columns of queries, keys and values, and the rows of the output map."""
    ranks = group.size()
    heads = layer.heads
    kv_heads = layer.kv_heads
    if heads % ranks:
        raise ValueError(
            f"parallel.tensor = {ranks} does not divide {heads} heads; choose a divisor"
        )
    if kv_heads % ranks and ranks % kv_heads:
        raise ValueError(
            f"parallel.tensor = {ranks} and {kv_heads} key/value heads: neither divides the "
            f"other; choose a divisor or a multiple of the key/value heads"
        )
    if layer.spec.qk_norm is not None and not layer.norms_heads:
        raise ValueError(
            f"parallel.tensor = {ranks}: a qk_norm over all heads cannot be split; use "
            f"parallel.tensor = 1"
        )
    key_position = getattr(layer, "key_position", None)
    repeated = (layer.key, layer.value, key_position) if kv_heads % ranks else ()
    for linear in repeated:
        if linear is not None:
            width = linear.out_features // kv_heads
            head = group.get_local_rank() * kv_heads // ranks
            wrap_output(linear, partial(torch.narrow, dim=-1, start=head * width, length=width))
    if layer.position_bias is not None:
        wrap_output(layer.position_bias, partial(split_heads, group=group))
    return shard_linears(layer, excluded=repeated)


def shard_linears(
    layer: nn.Module, excluded: Collection[nn.Module | None] = ()
) -> dict[Tensor, Shard]:
    """Split columns of maps that read the residual stream and rows of maps that write it, by the
    declared roles.
    """
    placements: dict[Tensor, Shard] = {}
    facts = parameter_facts(layer)
    for path, part in layer.named_modules():
        if not isinstance(part, nn.Linear | ExpertLinear) or part in excluded:
            continue
        weight = facts[f"{path}.weight"]
        if weight.role is Role.MATRIX and weight.stream_dim in (INPUT, OUTPUT):
            columns = weight.stream_dim == INPUT
            placements[part.weight] = Shard(part.weight.dim() + (OUTPUT if columns else INPUT))
            if columns and part.bias is not None:
                placements[part.bias] = Shard(part.bias.dim() - 1)
            if isinstance(part, LoRALinear):  # B A is split as W is
                split = (part.widen, 0) if columns else (part.narrow, 1)
                placements[split[0]] = Shard(split[1])
    return placements


def shard_feedforward(layer: FeedForward, group: DeviceMesh) -> dict[Tensor, Shard]:
    check_hidden(layer.up.out_features, group)
    return shard_linears(layer)


def shard_experts(
    layer: MixtureOfExpertsLayer, group: DeviceMesh, whole_experts: bool
) -> dict[Tensor, Shard]:
    """Split every expert by columns and rows, or place whole experts on different ranks."""
    layer_forward = layer.forward

    def forward(x_BLD: Tensor) -> Tensor:
        y_BLD = layer_forward(x_BLD)
        assert layer.score_BLE is not None
        # Every rank computes the full router losses, whose gradients are summed.
        layer.score_BLE = ScaledGradient.apply(layer.score_BLE, 1 / group.size())
        return y_BLD

    replace_forward(layer, forward)
    if not whole_experts:
        check_hidden(layer.up.weight.shape[1], group)
        return shard_linears(layer, excluded=(layer.router,))
    maps = [part for part in layer.children() if isinstance(part, ExpertLinear)]
    for part in maps:
        wrap_experts(part, layer.s.experts, group)
    return {parameter: Shard(0) for part in maps for parameter in part.parameters()}


def check_hidden(hidden: int, group: DeviceMesh) -> None:
    if hidden % group.size():
        raise ValueError(
            f"parallel.tensor = {group.size()} does not divide the hidden width {hidden}; choose a "
            "divisor"
        )


def wrap_experts(linear: ExpertLinear, experts: int, group: DeviceMesh) -> None:
    """Compute only the tokens of this rank's experts; other rows are 0."""
    whole = linear.forward
    (first, count) = chunk(experts, group)

    def forward(x_TD: Tensor, ends_E: Tensor, expert_T: Tensor) -> Tensor:
        ends = [0, *ends_E.tolist()]
        begin = ends[first]
        end = ends[first + count]
        here_E = (ends_E[first : first + count] - begin).to(ends_E.dtype)
        y_TD = whole(x_TD[begin:end], here_E, expert_T[begin:end] - first)
        return F.pad(y_TD, (0, 0, begin, len(x_TD) - end))

    replace_forward(linear, forward)


def split_heads(bias: Tensor, group: DeviceMesh) -> Tensor:
    """Return this rank's heads of a position bias (…, H, L, M)."""
    heads = bias.shape[-3] // group.size()
    return bias.narrow(-3, heads * group.get_local_rank(), heads)


# Regions


class SequenceParts:
    """The tokens of one stack, split between its regions in training."""

    def __init__(self, stack: StackLayer, group: DeviceMesh) -> None:
        self.group = group
        self.length = 0
        self.split = False
        self.wrap_first(stack.blocks[0])
        self.wrap_norm(stack.norm)
        for part in stack.blocks.modules():
            if isinstance(part, BranchLayer):
                self.wrap_dropout(part.drop)

    def wrap_first(self, block: nn.Module) -> None:
        before = block.forward

        def forward(x_BLD: Tensor, *others: Any) -> Tensor:
            self.length = x_BLD.shape[1]
            self.split = block.training
            x_BSD = split_sequence(x_BLD, self.group) if self.split else x_BLD
            y_BSD: Tensor = before(x_BSD, *others)
            return y_BSD

        replace_forward(block, forward)

    def wrap_norm(self, norm: nn.Module) -> None:
        """Gather whole sequences for the stack's norm."""
        before = norm.forward

        def forward(x_BSD: Tensor) -> Tensor:
            if self.split:
                x_BSD = join_sequence(x_BSD, self.length, self.group, region=False)
            y_BLD: Tensor = before(x_BSD)
            return y_BLD

        replace_forward(norm, forward)

    def wrap_dropout(self, drop: nn.Module) -> None:
        before = drop.forward

        def forward(x_BSD: Tensor) -> Tensor:
            keys = CurrentKeys.keys
            if not self.split or keys is None:
                result: Tensor = before(x_BSD)
                return result
            first, count = chunk(self.length, self.group)
            with use_keys(keys._replace(key_BL=keys.key_BL[:, first : first + count])):
                result = before(x_BSD)
            return result

        replace_forward(drop, forward)


def wrap_region(
    layer: nn.Module, group: DeviceMesh, parts: SequenceParts | None, splits_vectors: bool
) -> None:
    """Wrap a region. With `splits_vectors`, heads or hidden vectors are split, and so are the
    random numbers of their dropout.
    """
    before = layer.forward
    part = (group.get_local_rank(), group.size()) if splits_vectors else (0, 1)

    def forward(x_BLD: Tensor, *others: Any) -> Tensor:
        split = parts is not None and parts.split
        if split:
            assert parts is not None
            x_BLD = join_sequence(x_BLD, parts.length, group, region=True)
        else:
            x_BLD = enter_region(x_BLD, group)
        others = tuple(enter_other(other, group) for other in others)
        with use_part(*part):
            y_BLD = before(x_BLD, *others)
        return sum_parts(y_BLD, group, sequence=split)

    replace_forward(layer, forward)


def enter_other(value: Any, group: DeviceMesh) -> Any:
    """Enter a region with an additional input: the encoder's output or learned positions."""
    if isinstance(value, Tensor) and value.requires_grad:
        return enter_region(value, group)
    if isinstance(value, AttentionContext):
        names = ("position_BLD", "memory_position_BMD")
        return value._replace(**{name: enter_other(getattr(value, name), group) for name in names})
    if isinstance(value, AnchorContext):
        return AnchorContext(*(enter_other(part, group) for part in value))
    return value


# The whole model


def apply_tensor_parallel(loss: Loss, group: DeviceMesh, whole_experts: bool = False) -> None:
    """Split a task's models over a group of ranks.

    Args:
        loss: the task's module, on any device.
        group: a mesh of one dimension.
        whole_experts: whether each rank has whole experts of a mixture instead of a part of every
            expert.
    """
    placements: dict[Tensor, Shard] = {}  # split tensors; all others are replicated
    partial_parts: set[nn.Module] = set()  # modules whose gradients are partial sums
    # its loss reads the output of every block
    detects = isinstance(loss.model.spec.head, S.DetectionHead)
    for stack in list(loss.modules()):
        # A user-defined stack is replicated.
        if isinstance(stack, StackLayer) and type(stack) in (StackLayer, DetectionDecoder):
            reads_whole = stack.position_scale is not None or stack.layer_combination is not None
            in_parts = not (detects or stack.layers or reads_whole)
            parts = SequenceParts(stack, group) if in_parts else None
            placements |= split_stack(stack, group, parts, whole_experts)
            regions = [part for part in stack.modules() if is_region(part)]
            if stack.position_bias is not None:
                wrap_output(stack.position_bias, partial(split_heads, group=group))
                regions.append(stack.position_bias)
            for region in [*regions, *(stack.blocks if in_parts else ())]:
                partial_parts |= set(region.modules())
    if loss.splits_vocabulary:
        split, parts_of_head = split_vocabulary(loss, group)
        placements = placements | split
        partial_parts = partial_parts | parts_of_head
    rest = distribute(loss, group, placements, partial_parts)
    for block in [part for part in loss.modules() if isinstance(part, BlockLayer)]:
        inside = set(block.modules())
        wrap_unit(block, [t for t in rest if t.owner in inside], group)
        rest = [t for t in rest if t.owner not in inside]
    for name in ("forward", "outputs_and_sums"):
        wrap_unit(loss, rest, group, name)


def is_region(part: nn.Module) -> bool:
    return type(part) in (*ATTENTIONS, FeedForward, MixtureOfExpertsLayer)


def split_stack(
    stack: StackLayer, group: DeviceMesh, parts: SequenceParts | None, whole_experts: bool
) -> dict[Tensor, Shard]:
    """Turn every layer that can be split into a region; other layers are replicated."""
    placements: dict[Tensor, Shard] = {}
    for layer in list(stack.modules()):
        if isinstance(layer, AttentionLayer) and type(layer) in ATTENTIONS:
            placements |= shard_attention(layer, group)
        elif type(layer) is FeedForward:
            placements |= shard_feedforward(layer, group)
        elif type(layer) is MixtureOfExpertsLayer:
            placements |= shard_experts(layer, group, whole_experts)
        else:
            if parts is not None and isinstance(layer, BranchLayer) and not is_region(layer.inner):
                raise ValueError(
                    f"parallel.tensor = {group.size()}: {type(layer.inner).__name__} cannot be "
                    f"split; use parallel.tensor = 1"
                )
            continue
        whole = whole_experts and isinstance(layer, MixtureOfExpertsLayer)
        wrap_region(layer, group, parts, splits_vectors=not whole)
    return placements
