"""Tensor parallelism (Shoeybi et al. 2019, arXiv:1909.08053), sequence parallelism (Korthikanti et al. 2022, arXiv:2205.05198) and
experts on several ranks, applied from outside of the layers.

Parameters are DTensors; while a layer computes, it sees this rank's part of them as plain tensors, so its code and kernels are those of
one process. A region (an attention, a feed-forward, a mixture, the LM head) reads the same numbers on all ranks of the group and computes a
part of a sum or of the columns, so every gradient inside it is a part of a sum. Between regions a token is on one rank alone.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

from .. import spec as S
from ..kernels.cross_entropy import (
    SharedCrossEntropy,
    VocabularyPart,
    cross_entropy,
    pad_labels,
)
from ..kernels.keyed_random import CurrentKeys, use_keys, use_part
from ..layers.attention import AttentionContext, AttentionLayer
from ..layers.embedding import TokenEmbedding
from ..layers.feedforward import FeedForward
from ..layers.mixture_of_experts import ExpertLinear, MixtureOfExpertsLayer
from ..layers.roles import INPUT, OUTPUT, Role, parameter_facts
from ..layers.sequence import HiddenStates
from ..model.block import BlockLayer, BranchLayer
from ..model.heads import LMHeadLayer
from ..model.model import Model
from ..model.stack import StackLayer
from ..tasks.base import Loss

WHOLE, PART = Replicate(), Partial()


class LocalTensor(NamedTuple):
    """How a layer sees one of its parameters or buffers while it computes."""

    owner: nn.Module
    name: str
    is_partial: bool  # each rank computes a part of the sum that is its gradient
    is_first: bool = False  # added by the first rank alone, since the results are summed


def chunk(size: int, group: DeviceMesh) -> tuple[int, int]:
    """Return where this rank's part of a dimension begins and its size, as `torch.chunk` cuts it."""
    rows = -(-size // group.size())
    first = min(rows * group.get_local_rank(), size)
    return first, min(rows, size - first)


# What travels between the ranks of a group


def enter_region(x: Tensor, group: DeviceMesh) -> Tensor:
    """The same numbers; the gradient is the sum over the ranks."""
    return DTensor.from_local(x, group, [WHOLE], run_check=False).to_local(grad_placements=[PART])


def sum_parts(x: Tensor, group: DeviceMesh, sequence: bool = False) -> Tensor:
    """The sum over the ranks: whole, or each rank's tokens of it."""
    summed = DTensor.from_local(x, group, [PART], run_check=False)
    return summed.redistribute(placements=[Shard(1) if sequence else WHOLE]).to_local()


def split_sequence(x_BLD: Tensor, group: DeviceMesh) -> Tensor:
    """This rank's tokens."""
    whole = DTensor.from_local(x_BLD, group, [WHOLE], run_check=False)
    return whole.redistribute(placements=[Shard(1)]).to_local()


def join_sequence(x_BSD: Tensor, length: int, group: DeviceMesh, region: bool) -> Tensor:
    """The tokens of all ranks; `region`: the gradient is the sum over the ranks."""
    shape = torch.Size((x_BSD.shape[0], length, x_BSD.shape[2]))
    parts = DTensor.from_local(
        x_BSD, group, [Shard(1)], run_check=False, shape=shape, stride=contiguous_stride(shape)
    )
    whole = parts.redistribute(placements=[WHOLE])
    return whole.to_local(grad_placements=[PART if region else WHOLE])


def contiguous_stride(shape: torch.Size) -> tuple[int, ...]:
    strides = [1]
    for size in reversed(shape[1:]):
        strides.insert(0, strides[0] * size)
    return tuple(strides)


class ScaledGradient(torch.autograd.Function):
    """The same numbers; the gradient is multiplied."""

    @staticmethod
    def forward(context: Any, x: Tensor, scale: float) -> Tensor:
        context.scale = scale
        return x.view_as(x)

    @staticmethod
    def backward(context: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad * context.scale, None


# Which part of each parameter is where


def shard_attention(layer: AttentionLayer, group: DeviceMesh) -> dict[str, Shard]:
    """Heads on several ranks: the columns of queries, keys and values, and the rows of the output map."""
    ranks, heads, kv_heads = group.size(), layer.heads, layer.kv_heads
    if heads % ranks:
        raise ValueError(
            f"parallel.tensor = {ranks} does not divide {heads} heads; choose a divisor"
        )
    if kv_heads % ranks and ranks % kv_heads:
        raise ValueError(
            f"parallel.tensor = {ranks} and {kv_heads} key/value heads: neither divides the other; choose another"
        )
    if layer.spec.qk_norm is not None and not layer.norms_heads:
        raise ValueError(
            f"parallel.tensor = {ranks}: a qk_norm over all heads needs them on one rank; use tensor = 1"
        )
    repeated = {"key", "value", "key_position"} if kv_heads % ranks else set()
    for name in sorted(repeated):
        if (linear := getattr(layer, name)) is not None:
            width = linear.out_features // kv_heads
            head = group.get_local_rank() * kv_heads // ranks
            wrap_output(linear, lambda y, head=head, width=width: y.narrow(-1, head * width, width))
    if layer.position_bias is not None:
        wrap_output(layer.position_bias, partial(split_heads, group=group))
    return {
        name: placement
        for name, placement in shard_linears(layer).items()
        if name.partition(".")[0] not in repeated
    }


def shard_linears(layer: nn.Module) -> dict[str, Shard]:
    """Columns where a map reads the residual stream, rows where it writes it: by the roles that the parts declare."""
    placements = {}
    facts = parameter_facts(layer)
    for path, part in layer.named_modules():
        if not isinstance(part, nn.Linear | ExpertLinear):
            continue
        weight = facts[f"{path}.weight"]
        if weight.role is Role.MATRIX and weight.stream_dim in (INPUT, OUTPUT):
            columns = weight.stream_dim == INPUT
            placements[f"{path}.weight"] = Shard(part.weight.dim() + (OUTPUT if columns else INPUT))
            if columns and part.bias is not None:
                placements[f"{path}.bias"] = Shard(part.bias.dim() - 1)
            if (narrow := getattr(part, "narrow", None)) is not None:  # LoRA: B A is split as W is
                placements[f"{path}.{'widen' if columns else 'narrow'}"] = Shard(
                    0 if columns else 1
                )
    return placements


def shard_feedforward(layer: FeedForward, group: DeviceMesh) -> dict[str, Shard]:
    check_hidden(layer.up.out_features, group)
    return shard_linears(layer)


def shard_experts(
    layer: MixtureOfExpertsLayer, group: DeviceMesh, whole_experts: bool
) -> dict[str, Shard]:
    """Every expert in columns and rows, or whole experts on several ranks."""
    layer_forward = layer.forward

    def forward(x_BLD: Tensor) -> Tensor:
        y_BLD = layer_forward(x_BLD)
        assert layer.score_BLE is not None
        # Every rank computes the whole of the routers' losses, whose gradients are summed.
        layer.score_BLE = ScaledGradient.apply(layer.score_BLE, 1 / group.size())
        return y_BLD

    layer.forward = forward  # type: ignore[method-assign]
    maps = [name for name, part in layer.named_children() if isinstance(part, ExpertLinear)]
    if not whole_experts:
        check_hidden(layer.up.weight.shape[1], group)
        return {
            name: placement
            for name, placement in shard_linears(layer).items()
            if name.partition(".")[0] in maps
        }
    for name in maps:
        wrap_experts(getattr(layer, name), layer.s.experts, group)
    return {
        f"{name}.{tensor}": Shard(0)
        for name in maps
        for tensor, _ in getattr(layer, name).named_parameters()
    }


def check_hidden(hidden: int, group: DeviceMesh) -> None:
    if hidden % group.size():
        raise ValueError(
            f"parallel.tensor = {group.size()} does not divide the hidden width {hidden}; choose a divisor"
        )


def wrap_experts(linear: ExpertLinear, experts: int, group: DeviceMesh) -> None:
    """Only the tokens of this rank's experts are computed; the others' rows are 0."""
    whole, (first, count) = linear.forward, chunk(experts, group)

    def forward(x_TD: Tensor, ends_E: Tensor, expert_T: Tensor) -> Tensor:
        ends = [0, *ends_E.tolist()]
        begin, end = ends[first], ends[first + count]
        here_E = (ends_E[first : first + count] - begin).to(ends_E.dtype)
        y_TD = whole(x_TD[begin:end], here_E, expert_T[begin:end] - first)
        return F.pad(y_TD, (0, 0, begin, len(x_TD) - end))

    linear.forward = forward  # type: ignore[method-assign]


def split_heads(bias: Tensor, group: DeviceMesh) -> Tensor:
    """This rank's heads of a position bias (…, H, L, M)."""
    heads = bias.shape[-3] // group.size()
    return bias.narrow(-3, heads * group.get_local_rank(), heads)


def wrap_output(module: nn.Module, function: Callable[[Tensor], Tensor]) -> None:
    before = module.forward

    def forward(*inputs: Any) -> Tensor:
        return function(before(*inputs))

    module.forward = forward  # type: ignore[method-assign]


# Regions


class SequenceParts:
    """The tokens of one stack, split between its regions in training."""

    def __init__(self, stack: StackLayer, group: DeviceMesh) -> None:
        self.group, self.length, self.split = group, 0, False
        self.wrap_first(stack.blocks[0])
        self.wrap_norm(stack.norm)
        for part in stack.blocks.modules():
            if isinstance(part, BranchLayer):
                self.wrap_dropout(part.drop)

    def wrap_first(self, block: nn.Module) -> None:
        before = block.forward

        def forward(x_BLD: Tensor, *others: Any) -> Tensor:
            self.length, self.split = x_BLD.shape[1], block.training
            x_BSD = split_sequence(x_BLD, self.group) if self.split else x_BLD
            y_BSD: Tensor = before(x_BSD, *others)
            return y_BSD

        block.forward = forward  # type: ignore[method-assign]

    def wrap_norm(self, norm: nn.Module) -> None:
        """The stack's norm reads whole sequences again."""
        before = norm.forward

        def forward(x_BSD: Tensor) -> Tensor:
            if self.split:
                x_BSD = join_sequence(x_BSD, self.length, self.group, region=False)
            y_BLD: Tensor = before(x_BSD)
            return y_BLD

        norm.forward = forward  # type: ignore[method-assign]

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

        drop.forward = forward  # type: ignore[method-assign]


def wrap_region(
    layer: nn.Module, group: DeviceMesh, parts: SequenceParts | None, splits_vectors: bool
) -> None:
    """`splits_vectors`: heads or hidden vectors are in parts, and so are the random numbers that drop them."""
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

    layer.forward = forward  # type: ignore[method-assign]


def enter_other(value: Any, group: DeviceMesh) -> Any:
    """What a region reads beside x: the encoder's output, and positions that are learned."""
    if isinstance(value, Tensor) and value.requires_grad:
        return enter_region(value, group)
    if isinstance(value, AttentionContext):
        names = ("position_BLD", "memory_position_BMD", "anchor_position_BLD")
        return value._replace(**{name: enter_other(getattr(value, name), group) for name in names})
    return value


def wrap_embedding(embedding: TokenEmbedding, vocab_size: int, group: DeviceMesh) -> None:
    """Rows of the table on several ranks. The layer then reads a table of the batch's own rows."""
    before, (first, _) = embedding.forward, chunk(vocab_size, group)

    def forward(ids_BL: Tensor, part_VD: Tensor, *others: Any) -> HiddenStates:
        at_BL = ids_BL - first
        here_BL1 = ((at_BL >= 0) & (at_BL < len(part_VD)))[..., None]
        x_BLD = F.embedding(at_BL.clamp(0, len(part_VD) - 1), part_VD) * here_BL1
        x_TD = sum_parts(x_BLD, group).flatten(0, 1)
        at_BL = torch.arange(len(x_TD), device=x_TD.device).view_as(ids_BL)
        states: HiddenStates = before(at_BL, x_TD, *others)
        return states

    embedding.forward = forward  # type: ignore[method-assign]


def wrap_lm_head(head: LMHeadLayer, vocab_size: int, group: DeviceMesh) -> None:
    """Columns of the logits on several ranks; in training they stay there, for the loss."""
    before = head.forward

    def forward(sequence: HiddenStates, part_VD: Tensor) -> Tensor:
        x_BLD = enter_region(sequence.x_BLD, group)
        logits_BLV = before(sequence._replace(x_BLD=x_BLD), part_VD)
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

    head.forward = forward  # type: ignore[method-assign]


@cross_entropy.register(DTensor)
def shared_cross_entropy(logits_TV: DTensor, label_T: Tensor, smoothing: float = 0.0) -> Tensor:
    """Of logits whose columns are on several ranks."""
    group, (placement,) = logits_TV.device_mesh, logits_TV.placements
    assert placement == Shard(1), placement
    first, _ = chunk(logits_TV.shape[1], group)

    def reduce(x: Tensor, op: Any) -> Tensor:
        dist.all_reduce(x, op, group=group.get_group())
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


# The whole


def apply_tensor_parallel(loss: Loss, group: DeviceMesh, whole_experts: bool = False) -> None:
    """Split a task's models over a group of ranks.

    Args:
        loss: the task's module, on any device.
        group: a mesh of one dimension.
        whole_experts: whether a rank has whole experts of a mixture, and not a part of every one.
    """
    placements: dict[str, Shard] = {}  # what is split; everything else is whole on every rank
    partial_paths: set[str] = set()  # modules in which gradients are parts of sums
    for path, stack in loss.named_modules():
        if isinstance(stack, StackLayer):
            splits_sequence = not stack.layers and stack.position_scale is None
            detects = isinstance(getattr(loss, "model", None), Model) and isinstance(
                loss.model.spec.head, S.DetectionHead
            )
            parts = SequenceParts(stack, group) if splits_sequence and not detects else None
            split = split_stack(stack, group, parts, whole_experts)
            placements |= {f"{path}.{name}": placement for name, placement in split.items()}
            partial_paths |= {
                f"{path}.{name}"
                for name, part in stack.named_modules()
                if is_region(part) or (parts is not None and isinstance(part, BlockLayer))
            }
            if stack.position_bias is not None:
                wrap_output(stack.position_bias, partial(split_heads, group=group))
                partial_paths.add(f"{path}.position_bias")
    if loss.splits_vocabulary:
        split, paths = split_vocabulary(loss, group)
        placements, partial_paths = placements | split, partial_paths | paths
    units = {path: unit for path, unit in loss.named_modules() if isinstance(unit, BlockLayer)}
    local = distribute(loss, group, placements, partial_paths)
    for path, unit in units.items():
        wrap_unit(unit, [t for p, t in local if p.startswith(f"{path}.")], group)
    rest = [t for p, t in local if not any(p.startswith(f"{path}.") for path in units)]
    for name in ("forward", "outputs_and_sums"):
        wrap_unit(loss, rest, group, name)


def is_region(part: nn.Module) -> bool:
    return type(part) in (AttentionLayer, FeedForward, MixtureOfExpertsLayer)


def split_stack(
    stack: StackLayer, group: DeviceMesh, parts: SequenceParts | None, whole_experts: bool
) -> dict[str, Shard]:
    """Make a region of every layer that can be split; others are computed whole by every rank."""
    placements: dict[str, Shard] = {}
    for path, layer in stack.named_modules():
        if type(layer) is AttentionLayer:
            split = shard_attention(layer, group)
        elif type(layer) is FeedForward:
            split = shard_feedforward(layer, group)
        elif type(layer) is MixtureOfExpertsLayer:
            split = shard_experts(layer, group, whole_experts)
        else:
            if parts is not None and isinstance(layer, BranchLayer) and not is_region(layer.inner):
                raise ValueError(
                    f"parallel.tensor = {group.size()}: {type(layer.inner).__name__} cannot be split; use tensor = 1"
                )
            continue
        whole = whole_experts and isinstance(layer, MixtureOfExpertsLayer)
        wrap_region(layer, group, parts, splits_vectors=not whole)
        placements |= {f"{path}.{name}": placement for name, placement in split.items()}
    return placements


def split_vocabulary(loss: Loss, group: DeviceMesh) -> tuple[dict[str, Shard], set[str]]:
    """Rows of the token tables, columns of the logits and what is added to them."""
    placements, partial_paths = {}, set()
    for path, part in loss.named_modules():
        if isinstance(part, TokenEmbedding):
            table = part.tokens or loss.model.source.tokens
            assert isinstance(table, nn.Embedding)
            wrap_embedding(part, table.num_embeddings, group)
            if part.tokens is not None:
                placements[f"{path}.tokens.weight"] = Shard(0)
        elif isinstance(part, LMHeadLayer):
            wrap_lm_head(part, loss.model.spec.vocab_size, group)
            partial_paths.add(path)
            if part.out is not None:
                placements[f"{path}.out.weight"] = Shard(0)
            if part.bias is not None:
                placements[f"{path}.bias"] = Shard(0)
    return placements, partial_paths


def distribute(
    loss: nn.Module, group: DeviceMesh, placements: dict[str, Shard], partial_paths: set[str]
) -> list[tuple[str, LocalTensor]]:
    """Make a DTensor of every parameter; return how layers see them. A parameter with two owners stays one."""
    distributed: dict[Tensor, nn.Parameter] = {}
    local = []
    facts = parameter_facts(loss)
    for path, owner in loss.named_modules():
        prefix = f"{path}." if path else ""
        inside = any(f"{path}.".startswith(f"{region}.") for region in partial_paths)
        for name, parameter in list(owner.named_parameters(recurse=False)):
            full = f"{prefix}{name}"
            if parameter not in distributed:
                placement = placements.get(full, WHOLE)
                distributed[parameter] = nn.Parameter(
                    distribute_tensor(parameter.detach(), group, [placement], src_data_rank=None),
                    requires_grad=parameter.requires_grad,
                )
            owner.register_parameter(name, distributed[parameter])
            is_bias = facts[full].role is Role.BIAS and full not in placements
            weight = placements.get(f"{prefix}weight")
            adds_once = is_bias and inside and weight is not None
            local.append(
                (full, LocalTensor(owner, name, inside and full not in placements, adds_once))
            )
        for name, _ in owner.named_buffers(recurse=False):
            if f"{prefix}{name}" in placements:
                local.append((f"{prefix}{name}", LocalTensor(owner, name, False)))
    return local


@contextmanager
def local_tensors(tensors: list[LocalTensor], group: DeviceMesh) -> Iterator[None]:
    """Inside, layers see this rank's part of their parameters as plain tensors."""
    before = [getattr(t.owner, t.name) for t in tensors]
    seen: dict[Tensor, Tensor] = {}
    try:
        for t, whole in zip(tensors, before, strict=True):
            store = t.owner._parameters if t.name in t.owner._parameters else t.owner._buffers
            if whole not in seen:
                seen[whole] = local_part(t, whole, group)
            store[t.name] = seen[whole]  # type: ignore[assignment]
        yield
    finally:
        for t, whole in zip(tensors, before, strict=True):
            store = t.owner._parameters if t.name in t.owner._parameters else t.owner._buffers
            store[t.name] = whole


def local_part(t: LocalTensor, whole: Tensor, group: DeviceMesh) -> Tensor:
    if not isinstance(whole, DTensor):  # a buffer: the bias of logits
        first, count = chunk(len(whole), group)
        return whole[first : first + count]
    part = whole.to_local(grad_placements=[PART] if t.is_partial else None)
    if t.is_first and group.get_local_rank() > 0:
        part = part * 0
    return part


def wrap_unit(
    unit: nn.Module, tensors: list[LocalTensor], group: DeviceMesh, name: str = "forward"
) -> None:
    before = getattr(unit, name)

    def forward(*inputs: Any) -> Any:
        with local_tensors(tensors, group):
            return before(*inputs)

    setattr(unit, name, forward)
