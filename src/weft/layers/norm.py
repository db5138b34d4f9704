"""Norms and the scalar functions between maps."""
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from .. import spec as S
from .gelu import gelu_tanh
from .precision import plain_cpu
from .roles import Role, with_role

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu, "swish": F.silu, "tanh": Tensor.tanh, "gelu": F.gelu,
    "gelu_tanh": lambda x: gelu_tanh(x) if plain_cpu(x) and x.dtype == torch.bfloat16 else F.gelu(x, approximate="tanh"),
    "gelu_sigmoid": lambda x: x * (1.702 * x).sigmoid(),
}


def build_norm(s: S.Norm | None, width: int) -> nn.Module:
    if s is None:
        return nn.Identity()
    if isinstance(s, S.RMSNorm):
        return RMSNorm(width, eps=s.eps)
    return nn.LayerNorm(width, eps=s.eps, bias=s.bias)


def cap(x: Tensor, softcap: float) -> Tensor:
    """Bounded by ± softcap, and the same near 0 (Gemma 2, arXiv:2408.00118, section 2)."""
    return torch.tanh(x / softcap) * softcap


class LayerScale(nn.Module):
    """A gain per channel (Touvron et al. 2021, arXiv:2103.17239)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width))
        with_role(self, Role.NORM)

    def forward(self, x_BLD: Tensor) -> Tensor:
        return x_BLD * self.weight


class RMSNorm(nn.RMSNorm):
    """torch's own, but in training on the CPU, where its many small steps take as long as five layer norms."""

    def forward(self, x: Tensor) -> Tensor:
        if not (plain_cpu(x) and torch.is_grad_enabled() and x.dtype == self.weight.dtype and x.requires_grad):
            return super().forward(x)
        eps = torch.finfo(x.dtype).eps if self.eps is None else self.eps
        y: Tensor = RootMeanSquare.apply(x, self.weight, eps)
        return y


class RootMeanSquare(torch.autograd.Function):
    """unit · w, unit = x / √(mean(x²) + eps) (Zhang and Sennrich 2019, arXiv:1910.07467, section 4), its backward written out."""

    @staticmethod
    def forward(context: Any, x: Tensor, weight_D: Tensor, eps: float) -> Tensor:
        rate = torch.linalg.vector_norm(x, dim=-1, keepdim=True).square_().div_(len(weight_D)).add_(eps).rsqrt_()
        context.save_for_backward(x, weight_D, rate)
        y: Tensor = (x * rate).mul_(weight_D)
        return y

    @staticmethod
    @once_differentiable
    def backward(context: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        x, weight_D, rate = context.saved_tensors
        unit, dx = x * rate, grad * weight_D
        dx.addcmul_(unit, (dx * unit).mean(-1, keepdim=True), value=-1).mul_(rate)
        return dx, (grad * unit).reshape(-1, len(weight_D)).sum(0), None
