"""Attention with separate maps of positions (Conditional DETR, Meng et al. 2021, arXiv:2108.06152,
section 3.2).
"""

from typing import NamedTuple

import torch
from torch import Tensor

from .... import spec as S
from ...kernels.precision import cast_for_autocast
from ..attention import AttentionContext, AttentionLayer, KeyValueStore
from ..roles import INPUT, block_linear


class ProjectedAttention(AttentionLayer):
    """Self-attention with queries and keys Wx + Vp."""

    def __init__(self, spec: S.Attention, width: int) -> None:
        super().__init__(spec, width)
        query_width = spec.heads * self.head_dim
        key_width = self.kv_heads * self.head_dim
        self.query_position = block_linear(width, query_width, spec.bias, INPUT)
        self.key_position = block_linear(width, key_width, spec.bias, INPUT)

    def self_projections(self, x_BLD: Tensor, position_BLD: Tensor | None) -> tuple[Tensor, ...]:
        q_BLD, k_BLD, v_BLD = self.project(x_BLD, x_BLD)
        q_BLD = q_BLD + self.query_position(position_BLD)
        k_BLD = k_BLD + self.key_position(position_BLD)
        return q_BLD, k_BLD, v_BLD


class AnchorContext(NamedTuple):
    """The inputs of a cross-attention of anchors."""

    context: AttentionContext
    centre_BND: Tensor  # compared with the places of the cells


class ConditionalAttention(ProjectedAttention):
    """Cross-attention that compares content and position separately: a head's query is [Wx; Vc],
    its key [Wm; Vp]. In the first block of DAB-DETR the content includes positions: Wx + Up, Wm +
    Vp.
    """

    def __init__(self, spec: S.Attention, width: int) -> None:
        super().__init__(spec, width)
        self.query_added = (
            block_linear(width, spec.heads * self.head_dim, spec.bias, INPUT)
            if spec.query_key_positions == "projected-concatenated"
            else None
        )

    def forward(  # type: ignore[override]
        self,
        x_BND: Tensor,
        memory_BMD: Tensor,
        anchored: AnchorContext,
        store: KeyValueStore | None = None,
    ) -> Tensor:
        context = anchored.context
        q_BND = self.query(cast_for_autocast(x_BND))
        if self.query_added is not None:
            q_BND = q_BND + self.query_added(context.position_BLD)
        place_BND = self.query_position(anchored.centre_BND)
        memory_BMD = cast_for_autocast(memory_BMD)
        k_BMD = self.key(memory_BMD)
        place_BMD = self.key_position(context.memory_position_BMD)
        if self.query_added is not None:
            k_BMD = k_BMD + place_BMD
        content_BHNK = self.split_heads(q_BND, self.head_dim, self.query_norm)
        content_BGMK = self.split_heads(k_BMD, self.head_dim, self.key_norm)
        place_BHNK = self.split_heads(place_BND, self.head_dim)
        place_BGMK = self.split_heads(place_BMD, self.head_dim)
        q_BHNK = torch.cat((content_BHNK, place_BHNK), -1)
        k_BGMK = torch.cat((content_BGMK, place_BGMK.expand_as(content_BGMK)), -1)
        v_BGMK = self.split_heads(self.value(memory_BMD), self.value_dim)
        return self.join_heads(self.attend(q_BHNK, k_BGMK, v_BGMK, context))
