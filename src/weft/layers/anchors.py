"""Boxes as object queries, refined layer by layer (DAB-DETR, Liu et al. 2022, arXiv:2201.12329, section 4)."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from .. import spec as S
from .attention import AttentionContext
from .positions import sinusoidal_positions
from .roles import Role, unit_normal, with_role
from .sequence import HiddenStates


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


class AnchorQueriesLayer(nn.Module):
    """A learned box per query, as logits, and the maps from a box to where its query looks."""

    def __init__(self, spec: S.AnchorQueries, width: int) -> None:
        super().__init__()
        self.width = width
        self.anchors = with_role(nn.Embedding(spec.count, 4), Role.TABLE, formula=unit_normal)
        self.position = two_layers(2 * width, width, width)
        self.scale = two_layers(width, width, width)
        self.size = two_layers(width, width, 2)

    def forward(self, batch: int, dtype: torch.dtype) -> HiddenStates:
        anchor_1N4 = self.anchors.weight.sigmoid()[None]
        return HiddenStates(
            anchor_1N4.new_zeros(batch, anchor_1N4.shape[1], self.width, dtype=dtype),
            anchor_BL4=anchor_1N4.expand(batch, -1, -1),
        )

    def place(self, x_BND: Tensor, anchor_BN4: Tensor, first: bool) -> tuple[Tensor, Tensor]:
        """What self-attention adds for a box (equation 4), and what cross-attention compares with a cell's place: the sines of
        the box's centre, scaled by the query (equation 5) and by its size (equation 6)."""
        sines = anchor_sines(anchor_BN4, self.width)
        centre_BND = sines[..., : self.width]
        if not first:
            centre_BND = centre_BND * apply_mlp(self.scale, x_BND)
        ratio_BN2 = apply_mlp(self.size, x_BND).sigmoid() / anchor_BN4[..., 2:]
        by_axis = ratio_BN2.flip(-1).repeat_interleave(self.width // 2, -1)  # y first, by height
        return apply_mlp(self.position, sines), centre_BND * by_axis


class AnchorRefinement:
    """The boxes of one forward pass: they place the queries before a block, and move after it."""

    def __init__(
        self,
        layer: AnchorQueriesLayer,
        anchor_BN4: Tensor,
        box_offset: Callable[[Tensor], Tensor] | None,
    ) -> None:
        self.layer, self.anchor_BN4, self.box_offset = layer, anchor_BN4, box_offset
        self.references = [anchor_BN4]  # what the output of each block refines

    def place(
        self, x_BND: Tensor, context: AttentionContext, across: AttentionContext
    ) -> tuple[AttentionContext, AttentionContext]:
        first = len(self.references) == 1
        position_BND, centre_BND = self.layer.place(x_BND, self.anchor_BN4, first)
        return (
            context._replace(position_BLD=position_BND),
            across._replace(position_BLD=position_BND, anchor_position_BLD=centre_BND),
        )

    def move(self, x_BND: Tensor) -> None:
        """The next block starts from the moved boxes, but its gradient stops there."""
        moved_BN4 = self.anchor_BN4
        if self.box_offset is not None:
            moved_BN4 = (self.box_offset(x_BND) + inverse_sigmoid(moved_BN4)).sigmoid()
        self.references.append(moved_BN4)
        self.anchor_BN4 = moved_BN4.detach()

    def beside(self, sequence: HiddenStates) -> HiddenStates:
        """The outputs with the boxes that they refine: the head adds them."""
        return sequence._replace(
            anchor_BL4=self.references[-1], layer_anchors=tuple(self.references)
        )
