"""The feed-forward layer: dense or gated (Vaswani et al. 2017, section 3.3; Shazeer 2020,
arXiv:2002.05202).
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ... import spec as S
from ..kernels.precision import cast_for_autocast
from .activations import ACTIVATIONS
from .dropout import Dropout
from .roles import INPUT, OUTPUT, Role, block_linear, with_role


class FeedForward(nn.Module):
    def __init__(self, spec: S.MLP | S.GatedMLP, width: int) -> None:
        super().__init__()
        self.slope = nn.Parameter(torch.empty(1)) if spec.activation == "prelu" else None
        with_role(self, Role.BIAS, initial=0.25)
        self.activation = ACTIVATIONS.get(spec.activation)
        self.drop = Dropout(spec.dropout)
        gated = isinstance(spec, S.GatedMLP)
        self.gate = (
            block_linear(width, spec.hidden, spec.bias, INPUT, scaled_by_gain=True)
            if gated
            else None
        )
        self.up = block_linear(width, spec.hidden, spec.bias, INPUT, scaled_by_gain=True)
        self.down = block_linear(spec.hidden, width, spec.bias, OUTPUT, scaled_by_gain=True)

    def activate(self, h_BLF: Tensor) -> Tensor:
        if self.activation is not None:
            return self.activation(h_BLF)
        return F.prelu(h_BLF, self.slope)  # type: ignore[arg-type]

    def forward(self, x_BLD: Tensor) -> Tensor:
        if self.gate is None:
            h_BLF = self.activate(self.up(x_BLD))
        else:
            x_BLD = cast_for_autocast(x_BLD)
            h_BLF = self.activate(self.gate(x_BLD)) * self.up(x_BLD)
        y_BLD: Tensor = self.down(self.drop(h_BLF))
        return y_BLD
