"""Norm layers and gains."""

import torch
from torch import Tensor, nn

from ... import spec as S
from ...support.registry import implementation
from ..kernels.precision import is_eager_cpu
from ..kernels.rms_norm import RMSNormFunction
from .roles import Role, with_role


def build_norm(norm: S.Norm | None, width: int, *, stream: bool = True) -> nn.Module:
    """Build the layer of a norm; the identity for None.

    Args:
        norm: the norm's spec.
        width: the size of the last dimension.
        stream: whether that is the residual stream, not a head.
    """
    if norm is None:
        return nn.Identity()
    layer: nn.Module = implementation(norm)(norm, width)
    if "declared_roles" not in vars(layer):
        with_role(layer, Role.NORM, stream_dim=-1 if stream else None)
    return layer


def build_layer_norm(norm: S.LayerNorm, width: int) -> nn.Module:
    return nn.LayerNorm(width, eps=norm.eps, bias=norm.bias)


def build_rms_norm(norm: S.RMSNorm, width: int) -> nn.Module:
    return RMSNormLayer(width, eps=norm.eps)


class LayerScaleLayer(nn.Module):
    """A gain per channel (Touvron et al. 2021, arXiv:2103.17239)."""

    def __init__(self, spec: S.LayerScale, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width))
        with_role(self, Role.NORM, initial=spec.initial, stream_dim=-1)

    def forward(self, x_BLD: Tensor) -> Tensor:
        return x_BLD * self.weight


class RMSNormLayer(nn.RMSNorm):
    """PyTorch's RMSNorm except in training on the CPU, where its many small steps take as long as
    five layer norms.
    """

    def forward(self, x: Tensor) -> Tensor:
        if not (
            is_eager_cpu(x)
            and torch.is_grad_enabled()
            and x.dtype == self.weight.dtype
            and x.requires_grad
        ):
            return super().forward(x)
        eps = torch.finfo(x.dtype).eps if self.eps is None else self.eps
        y: Tensor = RMSNormFunction.apply(x, self.weight, eps)
        return y
