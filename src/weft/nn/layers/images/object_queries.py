"""Object queries: learned vectors (DETR, Carion et al. 2020, arXiv:2005.12872, section 3.2), or
boxes refined layer by layer (DAB-DETR, Liu et al. 2022, arXiv:2201.12329, section 4).
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .... import spec as S
from ..positions import sinusoidal_positions
from ..roles import Role, unit_normal, with_role
from ..sequence import HiddenStates


def two_layers(inputs: int, hidden: int, outputs: int) -> nn.ModuleList:
    """The maps of an MLP with one hidden layer."""
    return nn.ModuleList(
        with_role(nn.Linear(i, o), Role.PROJECTION)
        for i, o in ((inputs, hidden), (hidden, outputs))
    )


def apply_mlp(layers: nn.ModuleList, x: Tensor) -> Tensor:
    y: Tensor = layers[1](layers[0](x).relu())
    return y


def inverse_sigmoid(x: Tensor, smallest: float = 1e-5) -> Tensor:
    """log(x / (1 - x)) of fractions, finite at both ends."""
    x = x.clamp(0, 1)
    return (x.clamp(min=smallest) / (1 - x).clamp(min=smallest)).log()


def anchor_sines(anchor_BN4: Tensor, width: int) -> Tensor:
    """(B, N, 2 width): the sines of y, x, width and height, half the model's width each."""
    y_x_w_h = anchor_BN4[..., [1, 0, 2, 3]] * 2 * math.pi
    return sinusoidal_positions(y_x_w_h, width // 2, "interleaved", anchor_BN4.dtype).flatten(-2)


@dataclass(frozen=True, eq=False)
class ObjectStates(HiddenStates):
    """Object queries, before and after they are decoded.

    Attributes:
        anchor_BN4: each query's box: centre, width and height; what the head refines (DAB-DETR).
        group_ids_BN: as documents: a query sees its own group (DN-DETR).
    """

    anchor_BN4: Tensor | None = None
    group_ids_BN: Tensor | None = None


class ObjectQueriesLayer(nn.Module):
    """Object queries: initially zeros, distinguished by a learned vector at every attention."""

    def __init__(self, spec: S.ObjectQueries, width: int) -> None:
        super().__init__()
        self.at = spec.at
        self.queries = with_role(nn.Embedding(spec.count, width), Role.TABLE, formula=unit_normal)

    def forward(self, batch: int, dtype: torch.dtype) -> ObjectStates:
        place_1ND = self.queries.weight[None]
        if self.at == "input":
            return ObjectStates(place_1ND.to(dtype).expand(batch, -1, -1))
        return ObjectStates(
            torch.zeros(batch, *place_1ND.shape[1:], dtype=dtype, device=place_1ND.device),
            query_key_position_BLD=place_1ND,
        )


class AnchorQueriesLayer(nn.Module):
    """A learned box per query, as logits, and the maps from a box to where its query looks."""

    def __init__(self, spec: S.AnchorQueries, width: int) -> None:
        super().__init__()
        self.width = width
        self.anchors = with_role(nn.Embedding(spec.count, 4), Role.TABLE, formula=unit_normal)
        self.position = two_layers(2 * width, width, width)
        self.scale = two_layers(width, width, width)
        self.size = two_layers(width, width, 2)

    def forward(self, batch: int, dtype: torch.dtype) -> ObjectStates:
        anchor_1N4 = self.anchors.weight.sigmoid()[None]
        return ObjectStates(
            anchor_1N4.new_zeros(batch, anchor_1N4.shape[1], self.width, dtype=dtype),
            anchor_BN4=anchor_1N4.expand(batch, -1, -1),
        )

    def place(self, x_BND: Tensor, anchor_BN4: Tensor, first: bool) -> tuple[Tensor, Tensor]:
        """Return the positions of self-attention for a box (equation 4) and of cross-attention: the
        sinusoids of the box's centre, scaled by the query (equation 5) and by the box's size
        (equation 6).
        """
        sines = anchor_sines(anchor_BN4, self.width)
        centre_BND = sines[..., : self.width]
        if not first:
            centre_BND = centre_BND * apply_mlp(self.scale, x_BND)
        ratio_BN2 = apply_mlp(self.size, x_BND).sigmoid() / anchor_BN4[..., 2:]
        by_axis = ratio_BN2.flip(-1).repeat_interleave(self.width // 2, -1)  # y first, by height
        return apply_mlp(self.position, sines), centre_BND * by_axis
