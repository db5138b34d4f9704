"""Dropping numbers (Srivastava et al. 2014) and whole branches (Huang et al. 2016), in training only."""
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .precision import plain_cpu

LANES = 1 << 16                            # a draw is 16 bits of a random word, so a rate is a whole number of 65536ths


def build_dropout(rate: float) -> nn.Module:
    return Dropout(rate) if rate else nn.Identity()


class Dropout(nn.Dropout):
    def forward(self, x: Tensor) -> Tensor:
        return dropout(x, self.p) if self.training else x


def dropout(x: Tensor, rate: float) -> Tensor:
    """Each number is 0 with probability `rate`; the others grow to keep the mean. On the CPU torch's own draws one number at a time:
    a third of a training step."""
    if not plain_cpu(x):
        return F.dropout(x, rate)
    kept = kept_lanes(rate)
    y: Tensor = Hide.apply(x, draw(x.shape, kept), LANES / kept)
    return y


def kept_lanes(rate: float) -> int:
    """How many of the 65536 draws keep a number: never none, never all."""
    return min(max(round((1 - rate) * LANES), 1), LANES - 1)


def draw(shape: torch.Size, lanes: int) -> Tensor:
    """Ones with probability lanes / 65536, else zeros, in 16 bits; torch's generator gives the seed of the random words (SFC64)."""
    seed, many = int(torch.empty((), dtype=torch.int64).random_()), shape.numel()
    words = np.random.SFC64(seed).random_raw(-(-many // 4))
    return torch.from_numpy(words.view(np.int16))[:many].view(shape).lt_(lanes - LANES // 2)


def hide(x: Tensor, kept: Tensor) -> Tensor:
    """x · kept; for 16-bit numbers their bits times 0 or 1, without a conversion."""
    return (x.view(torch.int16) * kept).view(x.dtype) if x.dtype.itemsize == 2 else x * kept


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
        kept_B = torch.rand(x.shape[0], device=x.device) >= self.rate
        return x * (kept_B / (1 - self.rate)).to(x.dtype).view(-1, *[1] * (x.dim() - 1))
