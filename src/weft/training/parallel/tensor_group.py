"""Communication within a tensor group by DTensor redistribution, and replacement of a layer's
forward.
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
    """Return the start and size of this rank's part of a dimension, as split by `torch.chunk`."""
    rows = -(-size // group.size())
    first = min(rows * group.get_local_rank(), size)
    return first, min(rows, size - first)


def enter_region(x: Tensor, group: DeviceMesh) -> Tensor:
    """Return x unchanged; its gradient is summed over the ranks."""
    return DTensor.from_local(x, group, [WHOLE], run_check=False).to_local(grad_placements=[PART])


def sum_parts(x: Tensor, group: DeviceMesh, sequence: bool = False) -> Tensor:
    """Return the sum over the ranks, either whole or split by tokens."""
    summed = DTensor.from_local(x, group, [PART], run_check=False)
    return summed.redistribute(placements=[Shard(1) if sequence else WHOLE]).to_local()


def split_sequence(x_BLD: Tensor, group: DeviceMesh) -> Tensor:
    """Return this rank's tokens."""
    whole = DTensor.from_local(x_BLD, group, [WHOLE], run_check=False)
    return whole.redistribute(placements=[Shard(1)]).to_local()


def join_sequence(x_BSD: Tensor, length: int, group: DeviceMesh, region: bool) -> Tensor:
    """Return the tokens of all ranks; with `region`, the gradient is summed over the ranks."""
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
    """Identity whose gradient is multiplied by `scale`."""

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
