"""Positions with one fault each: a bias on the scores, and vectors at the input."""

import torch
import torch.nn.functional as F
from torch import nn

import weft
from weft.testing import check_part


@weft.register
class OwnBias(weft.PositionBias):
    """A learned number per head and distance."""

    reach: weft.spec.PositiveInt = 8
    fault: str = ""


@weft.implements(OwnBias)
class OwnBiasLayer(nn.Module):
    def __init__(self, bias, heads):
        super().__init__()
        self.fault = bias.fault
        self.reach = bias.reach
        self.weight = nn.Parameter(torch.empty(2 * bias.reach + 1, heads))
        weft.with_role(self, weft.Role.POSITION_BIAS)

    def forward(self, positions):
        distance_BLM = positions.offset_BLM
        if self.fault == "slots of the bias":
            # another distance with a cache, and beside padding on the left
            _, L, M = distance_BLM.shape
            distance_BLM = (torch.arange(M) - torch.arange(L)[:, None])[None].to(self.weight.device)
        row_BLM = distance_BLM.clamp(-self.reach, self.reach) + self.reach
        bias_BLMH = F.embedding(row_BLM, self.weight)
        return bias_BLMH if self.fault == "heads last" else bias_BLMH.permute(0, 3, 1, 2)


@weft.register
class OwnPositions(weft.InputPositions):
    """A learned vector per position."""

    count: weft.spec.PositiveInt = 64
    fault: str = ""


@weft.implements(OwnPositions)
class OwnPositionsLayer(nn.Module):
    def __init__(self, positions, width):
        super().__init__()
        self.fault = positions.fault
        self.weight = nn.Parameter(torch.empty(positions.count, width))
        weft.with_role(self, weft.Role.POSITION)

    def forward(self, position_BL, x_BLD):
        if position_BL is None or self.fault == "slots of the input":
            return self.weight[: x_BLD.shape[1]]
        return F.embedding(position_BL, self.weight)


def check(fault):
    check_part(OwnBias(fault=fault))
    check_part(OwnPositions(fault=fault))
