"""Local parts of sharded tensors, and their initialisation with the numbers of the whole model."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from ... import spec as S
from ...nn.initialisation import initialise_parameter, parameter_seed
from ...nn.layers.lora import LoRALinear, initialise_narrow
from ...nn.layers.roles import parameter_facts


def local_slices(tensor: Tensor) -> tuple[slice, ...]:
    """Return the slices of the whole tensor that are on this rank. Tensor parallelism splits first,
    then FSDP.
    """
    begin = [0] * tensor.dim()
    size = list(tensor.shape)
    if isinstance(tensor, DTensor):
        coordinate = tensor.device_mesh.get_coordinate()
        assert coordinate is not None
        for dim in reversed(range(len(coordinate))):
            if (axis := getattr(tensor.placements[dim], "dim", None)) is not None:
                rows = -(-size[axis] // tensor.device_mesh.size(dim))
                first = min(rows * coordinate[dim], size[axis])
                begin[axis] = begin[axis] + first
                size[axis] = min(rows, size[axis] - first)
    return tuple(slice(b, b + n) for b, n in zip(begin, size, strict=True))


def local_tensor(tensor: Tensor) -> Tensor:
    """Return the local part of a tensor, sharing its memory."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def full_tensor(tensor: Tensor) -> Tensor:
    """Return the whole tensor, gathered from all ranks."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def allocate(module: nn.Module, device: torch.device) -> None:
    """Allocate the local parts of tensors that are on the meta device."""
    module._apply(lambda t: torch.empty_like(t, device=device) if t.is_meta else t)


@torch.no_grad()
def initialise_shards(module: nn.Module, spec: S.Spec, seed: int) -> None:
    """Initialise local parts with the numbers of the whole model; one whole tensor exists at a
    time.
    """
    facts = parameter_facts(module)
    low_rank = {p for p, part in module.named_modules() if isinstance(part, LoRALinear)}
    for name, tensor in named_tensors(module):
        part = local_tensor(tensor)
        (path, _, kind) = name.rpartition(".")
        is_low_rank = path in low_rank and kind in ("narrow", "widen")
        if part.numel():
            whole = torch.zeros(tensor.shape, dtype=tensor.dtype, device=part.device)
            key = path if is_low_rank else name
            generator = torch.Generator(part.device).manual_seed(parameter_seed(seed, key))
            if not is_low_rank:
                initialise_parameter(whole, facts[name], spec, generator)
            elif kind == "narrow":
                initialise_narrow(whole, generator)
            part.copy_(whole[local_slices(tensor)])


def named_tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from module.named_parameters()
    yield from module.named_buffers()
