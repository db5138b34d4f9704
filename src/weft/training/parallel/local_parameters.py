"""Parameters of a tensor group: DTensors between forward passes, local plain tensors inside a
layer's forward.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from .tensor_group import PART, WHOLE, chunk


class LocalTensor(NamedTuple):
    """How a layer sees one of its parameters or buffers during its forward."""

    owner: nn.Module
    name: str
    is_partial: bool  # each rank computes a partial sum of its gradient
    is_added_once: bool = False  # added by the first rank only, since the results are summed

    @property
    def store(self) -> dict[str, Any]:
        is_parameter = self.name in self.owner._parameters
        return self.owner._parameters if is_parameter else self.owner._buffers


def distribute(
    module: nn.Module,
    group: DeviceMesh,
    placements: Mapping[Tensor, Shard],
    partial_parts: set[nn.Module],
) -> list[LocalTensor]:
    """Convert every parameter to a DTensor; return how layers see them. Shared parameters stay
    shared.

    Args:
        module: the module with the parameters.
        group: a mesh of one dimension.
        placements: the dimension in which each tensor is split; other tensors are replicated.
        partial_parts: modules whose gradients are partial sums.
    """
    distributed: dict[Tensor, nn.Parameter] = {}
    local = []
    for owner in module.modules():
        is_partial = owner in partial_parts
        weight = owner._parameters.get("weight")
        sums_rows = is_partial and weight is not None and weight in placements
        for name, parameter in list(owner.named_parameters(recurse=False)):
            is_split = parameter in placements
            if parameter not in distributed:
                placement = placements.get(parameter, WHOLE)
                distributed[parameter] = nn.Parameter(
                    distribute_tensor(parameter.detach(), group, [placement], src_data_rank=None),
                    requires_grad=parameter.requires_grad,
                )
            is_bias = name == "bias" and not is_split
            local.append(
                LocalTensor(owner, name, is_partial and not is_split, is_bias and sums_rows)
            )
        for name, buffer in owner.named_buffers(recurse=False):
            if buffer in placements:
                local.append(LocalTensor(owner, name, False))
    for tensor in local:
        if isinstance(parameter := tensor.store[tensor.name], nn.Parameter):
            tensor.owner.register_parameter(tensor.name, distributed[parameter])
    return local


@contextmanager
def local_tensors(tensors: list[LocalTensor], group: DeviceMesh) -> Iterator[None]:
    """Inside the block, layers see the local parts of their parameters as plain tensors."""
    before = [t.store[t.name] for t in tensors]
    seen: dict[Tensor, Tensor] = {}
    try:
        for t, whole in zip(tensors, before, strict=True):
            if whole not in seen:
                seen[whole] = local_part(t, whole, group)
            t.store[t.name] = seen[whole]
        yield
    finally:
        for t, whole in zip(tensors, before, strict=True):
            t.store[t.name] = whole


def local_part(t: LocalTensor, whole: Tensor, group: DeviceMesh) -> Tensor:
    if not isinstance(whole, DTensor):  # a buffer: the bias of logits
        first, count = chunk(len(whole), group)
        return whole[first : first + count]
    part = whole.to_local(grad_placements=[PART] if t.is_partial else None)
    return part * 0 if t.is_added_once and group.get_local_rank() > 0 else part


def wrap_unit(
    unit: nn.Module, tensors: list[LocalTensor], group: DeviceMesh, name: str = "forward"
) -> None:
    """Wrap a method of a module so that it sees local tensors."""
    before = getattr(unit, name)

    def forward(*inputs: Any) -> Any:
        with local_tensors(tensors, group):
            return before(*inputs)

    setattr(unit, name, forward)
