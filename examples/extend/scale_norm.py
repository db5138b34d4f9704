"""A norm of one's own: ScaleNorm, g · x / |x| with one gain g (Nguyen and Salazar 2019,
arXiv:1910.05895).

weft train RECIPE --code examples/extend/scale_norm.py --set model.decoder.norm=ScaleNorm
"""

import torch
from torch import Tensor, nn

import weft


@weft.register
class ScaleNorm(weft.Norm):
    """g · x / |x|; g begins at the root of the width."""

    eps: float = 1e-5


@weft.implements(ScaleNorm)
class ScaleNormLayer(nn.Module):
    def __init__(self, norm: ScaleNorm, width: int) -> None:
        super().__init__()
        self.eps = norm.eps
        self.root = width**0.5
        self.weight = nn.Parameter(torch.ones(1))
        weft.with_role(self, weft.Role.NORM)

    def forward(self, x: Tensor) -> Tensor:
        return x * (self.weight * self.root / x.norm(dim=-1, keepdim=True).clamp(min=self.eps))
