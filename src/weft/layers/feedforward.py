"""The feed-forward layer: dense or gated (Vaswani et al. 2017, section 3.3; Shazeer 2020, arXiv:2002.05202)."""
from torch import Tensor, nn

from .. import spec as S
from .dropout import Dropout
from .norm import ACTIVATIONS
from .precision import cast_once
from .roles import matrix


class FeedForward(nn.Module):
    def __init__(self, s: S.Dense | S.Gated, width: int) -> None:
        super().__init__()
        self.activation, self.drop = ACTIVATIONS[s.activation], Dropout(s.dropout)
        self.gate = matrix(width, s.hidden, s.bias) if isinstance(s, S.Gated) else None
        self.up = matrix(width, s.hidden, s.bias)
        self.down = matrix(s.hidden, width, s.bias)

    def forward(self, x_BLD: Tensor) -> Tensor:
        if self.gate is None:
            h_BLF = self.activation(self.up(x_BLD))
        else:
            x_BLD = cast_once(x_BLD)
            h_BLF = self.activation(self.gate(x_BLD)) * self.up(x_BLD)
        y_BLD: Tensor = self.down(self.drop(h_BLF))
        return y_BLD
