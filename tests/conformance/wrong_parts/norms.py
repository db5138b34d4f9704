"""Norms with one fault each."""

import torch
from torch import nn

import weft
from weft.testing import check_part


@weft.register
class OwnNorm(weft.Norm):
    """Root mean square."""

    fault: str = ""


@weft.implements(OwnNorm)
class OwnNormLayer(nn.Module):
    def __init__(self, norm, width):
        super().__init__()
        self.fault = norm.fault
        self.weight = nn.Parameter(torch.ones(width))
        weft.with_role(self, weft.Role.NORM)

    def forward(self, x):
        if self.fault == "shape":
            return (x * self.weight).mean(-1, keepdim=True)
        if self.fault == "zeros":
            # no eps
            return x / x.norm(dim=-1, keepdim=True) * self.weight
        axes = tuple(range(x.dim() - 1)) if self.fault == "batch" else -1
        scale = (x.square().mean(axes, keepdim=True) + 1e-6).rsqrt()
        if self.fault == "in place":
            # x is also the residual stream
            x.data.mul_(scale.detach())
            return x * self.weight
        if self.fault == "float32":
            return x.float() * scale.float() * self.weight.float()
        return x * scale * self.weight


def check(fault):
    check_part(OwnNorm(fault=fault))
