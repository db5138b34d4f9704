"""Feed-forward layers with one fault each."""

import torch.nn.functional as F
from torch import nn

import weft
from weft.testing import check_part


@weft.register
class OwnMLP(weft.FeedForwardSpec):
    """A linear map, GELU, and another."""

    hidden: weft.spec.PositiveInt = 32
    fault: str = ""


def linear(inputs, outputs):
    return weft.with_role(nn.Linear(inputs, outputs, bias=False), weft.Role.MATRIX)


@weft.implements(OwnMLP)
class OwnMLPLayer(nn.Module):
    def __init__(self, feedforward, width):
        super().__init__()
        self.fault = feedforward.fault
        self.up = linear(width, feedforward.hidden)
        self.down = linear(feedforward.hidden, width)
        if self.fault == "unused gate":
            self.gate = linear(width, feedforward.hidden)
        if self.fault == "plain list":
            # neither trained nor saved
            self.experts = [linear(width, feedforward.hidden)]

    def forward(self, x):
        if self.fault == "next token":
            x = x + x.roll(-1, -2)
        hidden = F.gelu(self.up(x))
        if self.fault == "plain list":
            hidden = hidden + self.experts[0](x)
        if self.fault == "dropout in eval":
            hidden = F.dropout(hidden, 0.1)
        return self.down(hidden)


def check(fault):
    check_part(OwnMLP(fault=fault))
