"""Dropping numbers (Srivastava et al. 2014) and whole branches (Huang et al. 2016), in training only."""
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .keyed import LANES, Keys, draw, draw_weights, row_keys


class Dropout(nn.Dropout):
    """`keep`: of the tokens of packed rows, where no block says whose they are."""

    def forward(self, x: Tensor, keep_BL: Tensor | None = None) -> Tensor:
        if not self.training or not self.p:
            return x
        return dropout(x, self.p, None if keep_BL is None else row_keys(x.shape[0], x.shape[1], x.device, keep_BL))


def dropout(x: Tensor, rate: float, keys: Keys | None = None) -> Tensor:
    """Each number is 0 with probability `rate`; the others grow to keep the mean. Which ones depends on the sample and the place in it
    (`keyed`); torch's own also draws one number at a time on a CPU, a third of a training step."""
    if type(x) is not Tensor:
        return F.dropout(x, rate)          # a sharded or an imagined tensor
    kept = kept_lanes(rate)
    return scaled(x, draw(x.shape, kept, keys, x.device), LANES / kept)


def drop_weights(weight_BHLM: Tensor, rate: float) -> Tensor:
    """Dropout of attention weights."""
    if type(weight_BHLM) is not Tensor:
        return F.dropout(weight_BHLM, rate)
    kept = kept_lanes(rate)
    return scaled(weight_BHLM, draw_weights(weight_BHLM.shape, kept, weight_BHLM.device), LANES / kept)


def kept_lanes(rate: float) -> int:
    """How many of the 65536 draws keep a number: never none, never all."""
    return min(max(round((1 - rate) * LANES), 1), LANES - 1)


def hide(x: Tensor, kept: Tensor) -> Tensor:
    """x · kept; for 16-bit numbers their bits times 0 or 1, without a conversion."""
    return (x.view(torch.int16) * kept).view(x.dtype) if x.dtype.itemsize == 2 else x * kept


def scaled(x: Tensor, kept: Tensor, scale: float) -> Tensor:
    """x · kept · scale."""
    if torch.compiler.is_compiling():
        return x * (kept * scale).to(x.dtype)
    y: Tensor = Hide.apply(x, kept, scale)
    return y


class Hide(torch.autograd.Function):
    """x · kept · scale, whose gradient is the same function."""

    @staticmethod
    def forward(context: Any, x: Tensor, kept: Tensor, scale: float) -> Tensor:
        context.save_for_backward(kept)
        context.scale = scale
        return hide(x, kept).mul_(scale)

    @staticmethod
    def backward(context: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return Hide.apply(grad, *context.saved_tensors, context.scale), None, None


class SkipBranch(nn.Module):
    """A sample's whole update is dropped with probability `rate`; the others grow to keep the mean."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        kept = kept_lanes(self.rate)
        kept_B11 = draw(torch.Size((len(x), 1, 1)), kept, row_keys(len(x), 1, x.device), x.device)
        return x * (kept_B11.view(-1, *[1] * (x.dim() - 1)) * (LANES / kept)).to(x.dtype)
