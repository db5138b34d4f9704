"""Low-rank updates of linear maps (Hu et al. 2021, arXiv:2106.09685, section 4.1)."""
from copy import deepcopy
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .roles import role_of, with_role

M = TypeVar("M", bound=nn.Module)


class LowRank(nn.Linear):
    """y = x Wᵀ + b + scale · x Aᵀ Bᵀ. W and b stay; A is `narrow`, B is `widen`, which starts at 0."""
    scale: float
    narrow: nn.Parameter
    widen: nn.Parameter

    @classmethod
    def around(cls, linear: nn.Linear, rank: int, alpha: float, generator: torch.Generator) -> "LowRank":
        weight = linear.weight
        if rank >= min(weight.shape):
            raise ValueError(f"LoRA.rank = {rank} is not low for a map of {weight.shape[1]} × {weight.shape[0]}; give a smaller one")
        made = cls(linear.in_features, linear.out_features, linear.bias is not None, device="meta")
        made.weight, made.bias, made.scale = weight.requires_grad_(False), linear.bias, alpha / rank
        with_role(made, role_of(linear))
        if linear.bias is not None:
            linear.bias.requires_grad_(False)
        made.narrow = nn.Parameter(weight.new_empty(rank, linear.in_features).normal_(0, linear.in_features ** -0.5, generator=generator))
        made.widen = nn.Parameter(weight.new_zeros(linear.out_features, rank))
        return made

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + F.linear(F.linear(x, self.narrow), self.widen) * self.scale

    def merged(self) -> nn.Linear:
        made = nn.Linear(self.in_features, self.out_features, self.bias is not None, device="meta")
        made.weight, made.bias = nn.Parameter(self.weight + self.widen @ self.narrow * self.scale), self.bias
        return with_role(made, role_of(self))


def insert(module: nn.Module, path: str, rank: int, alpha: float, generator: torch.Generator) -> None:
    owner, _, name = path.rpartition(".")
    parent = module.get_submodule(owner)
    setattr(parent, name, LowRank.around(getattr(parent, name), rank, alpha, generator))


@torch.no_grad()
def merged(module: M) -> M:
    """The same function without low-rank parts: a copy, where there are any."""
    found = [path for path, part in module.named_modules() if isinstance(part, LowRank)]
    if found:
        module = deepcopy(module)
        for path in found:
            owner, _, name = path.rpartition(".")
            part = module.get_submodule(path)
            assert isinstance(part, LowRank)
            setattr(module.get_submodule(owner), name, part.merged())
    return module
