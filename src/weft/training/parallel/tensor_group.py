"""What travels between the ranks of a tensor group, by DTensor's redistributions; and how a layer's
forward is replaced.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

WHOLE = Replicate()
PART = Partial()


def chunk(size: int, group: DeviceMesh) -> tuple[int, int]:
    """Return where this rank's part of a dimension begins and its size, as `torch.chunk` cuts
    it.
    """
    rows = -(-size // group.size())
    first = min(rows * group.get_local_rank(), size)
    return first, min(rows, size - first)


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


def replace_forward(module: nn.Module, forward: Callable[..., Any]) -> None:
    module.forward = forward


def wrap_output(module: nn.Module, function: Callable[[Tensor], Tensor]) -> None:
    before = module.forward

    def forward(*inputs: Any) -> Tensor:
        return function(before(*inputs))

    replace_forward(module, forward)
