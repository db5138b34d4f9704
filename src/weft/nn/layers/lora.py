"""Low-rank updates of linear maps (Hu et al. 2021, arXiv:2106.09685, section 4.1)."""

from collections.abc import Callable
from copy import deepcopy
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .roles import copy_roles

M = TypeVar("M", bound=nn.Module)


class LoRALinear(nn.Linear):
    """y = x Wᵀ + b + scale · x Aᵀ Bᵀ. W and b are frozen; A is `narrow`, B is `widen`,
    initially 0.
    """

    scale: float
    narrow: nn.Parameter
    widen: nn.Parameter

    @classmethod
    def wrap(
        cls, linear: nn.Linear, rank: int, alpha: float, generator: torch.Generator
    ) -> "LoRALinear":
        weight = linear.weight
        if rank >= min(weight.shape):
            raise ValueError(
                f"LoRA.rank = {rank} is too large for a matrix of {weight.shape[1]} × "
                f"{weight.shape[0]}; give a smaller one"
            )
        layer = cls(linear.in_features, linear.out_features, linear.bias is not None, device="meta")
        layer.weight = weight.requires_grad_(False)
        layer.bias = linear.bias
        layer.scale = alpha / rank
        copy_roles(linear, layer)
        if linear.bias is not None:
            linear.bias.requires_grad_(False)
        layer.narrow = nn.Parameter(weight.new_empty(rank, linear.in_features))
        layer.widen = nn.Parameter(weight.new_zeros(linear.out_features, rank))
        if not weight.is_meta:
            initialise_narrow(layer.narrow, generator)
        return layer

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + F.linear(F.linear(x, self.narrow), self.widen) * self.scale

    def merged(self) -> nn.Linear:
        linear = nn.Linear(
            self.in_features, self.out_features, self.bias is not None, device="meta"
        )
        linear.weight = nn.Parameter(self.weight + self.widen @ self.narrow * self.scale)
        linear.bias = self.bias
        return copy_roles(self, linear)


@torch.no_grad()
def initialise_narrow(narrow_RD: Tensor, generator: torch.Generator) -> None:
    """Fill A, or a whole tensor of its shape."""
    narrow_RD.normal_(0, narrow_RD.shape[1] ** -0.5, generator=generator)


def insert_lora(
    module: nn.Module, path: str, rank: int, alpha: float, generator: torch.Generator
) -> None:
    owner, _, name = path.rpartition(".")
    parent = module.get_submodule(owner)
    setattr(parent, name, LoRALinear.wrap(getattr(parent, name), rank, alpha, generator))


@torch.no_grad()
def merge_lora(module: M) -> M:
    """Return a copy of the module with low-rank updates merged; the module itself if it has
    none.
    """
    lora_paths = [path for path, part in module.named_modules() if isinstance(part, LoRALinear)]
    if lora_paths:
        module = deepcopy(module)
        for path in lora_paths:
            owner, _, name = path.rpartition(".")
            part = module.get_submodule(path)
            assert isinstance(part, LoRALinear)
            setattr(module.get_submodule(owner), name, part.merged())
    return module


def merged_reader(module: nn.Module, read: Callable[[str], Tensor]) -> Callable[[str], Tensor]:
    """Return a function that reads the tensors of `merge_lora(module)` one at a time, from one that
    reads those of the module by name.
    """
    scales = {
        path: part.scale for path, part in module.named_modules() if isinstance(part, LoRALinear)
    }

    @torch.no_grad()
    def merged(name: str) -> Tensor:
        path, _, kind = name.rpartition(".")
        if kind != "weight" or path not in scales:
            return read(name)
        return read(name) + read(f"{path}.widen") @ read(f"{path}.narrow") * scales[path]

    return merged
