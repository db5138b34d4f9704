"""A position of one's own: a learned number per head and distance, equal beyond `reach` (Shaw et
al. 2018, arXiv:1803.02155, clipped).

weft train RECIPE --code examples/extend/learned_relative_bias.py \
    --set 'model.decoder.position_bias={"kind": "ClippedBias", "reach": 16}'
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import weft


@weft.register
class ClippedBias(weft.PositionBias):
    """One number per head for each distance from -reach to reach; further keys share the last."""

    reach: weft.spec.PositiveInt = 16


@weft.implements(ClippedBias)
class ClippedBiasLayer(nn.Module):
    def __init__(self, bias: ClippedBias, heads: int) -> None:
        super().__init__()
        self.reach = bias.reach
        self.weight = nn.Parameter(torch.empty(2 * bias.reach + 1, heads))
        weft.with_role(self, weft.Role.POSITION_BIAS)

    def forward(self, positions: weft.Positions) -> Tensor:
        row_BLM = positions.offset_BLM.clamp(-self.reach, self.reach) + self.reach
        return F.embedding(row_BLM, self.weight).permute(0, 3, 1, 2)
