"""Dropping numbers (Srivastava et al. 2014) and whole branches (Huang et al. 2016), in training only."""
import torch
from torch import Tensor, nn


def build_dropout(rate: float) -> nn.Module:
    return nn.Dropout(rate) if rate else nn.Identity()


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
