"""Self-attention on convolutional feature maps (SAGAN, Zhang et al. 2018, arXiv:1805.08318, section
3).
"""

import torch
from torch import Tensor, nn

from .... import spec as S
from ...kernels.masks import Positions
from ..attention import AttentionContext, AttentionLayer
from ..roles import Role, with_role


class SelfAttention2d(nn.Module):
    """x + gamma · out(softmax(query(x) key(x)ᵀ) value(x)) over all cells; gamma is learned and
    starts at 0, so that the network first relies on its convolutions.

    Args:
        channels: the channels of the feature map.
        reduction: queries, keys and values have channels / reduction channels.
    """

    def __init__(self, channels: int, reduction: int = 8) -> None:
        super().__init__()
        inner = channels // reduction
        if inner * reduction != channels:
            raise ValueError(f"reduction = {reduction} does not divide {channels} channels")
        spec = S.Attention(heads=1, head_dim=inner, scale=1.0, bias=False, out_bias=False)
        self.attention = AttentionLayer(spec, channels)
        self.gamma = nn.Parameter(torch.zeros(()))
        with_role(self, Role.NORM, initial=0.0)

    def forward(self, x_BCRS: Tensor) -> Tensor:
        """(B, C, R, S) -> (B, C, R, S)."""
        x_BLD = x_BCRS.flatten(2).mT
        cells = torch.arange(x_BLD.shape[1], device=x_BLD.device)[None]
        y_BLD = self.attention(x_BLD, None, AttentionContext(Positions(cells, cells)))
        attended_BCRS: Tensor = y_BLD.mT.reshape(x_BCRS.shape)
        return x_BCRS + self.gamma * attended_BCRS
