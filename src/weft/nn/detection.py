"""The decoder of a detection model: decodes object queries in parallel (DETR, Carion et al. 2020,
arXiv:2005.12872, section 3.2; DAB-DETR, Liu et al. 2022, arXiv:2201.12329, section 4).
"""

from dataclasses import replace

import torch
from torch import Tensor, nn

from .cache import KVCache
from .heads import DetectionHeadLayer
from .kernels.masks import Positions
from .layers.attention import AttentionContext
from .layers.images.conditional_attention import AnchorContext, ConditionalAttention
from .layers.images.object_queries import AnchorQueriesLayer, ObjectStates, inverse_sigmoid
from .layers.sequence import HiddenStates
from .stack import StackLayer, cross_context


class DetectionDecoder(StackLayer):
    """A stack that decodes object queries. Anchors give the queries' positions before each block
    and are refined after it.
    """

    def positions(self, sequence: HiddenStates, cache: KVCache | None) -> Positions:
        assert isinstance(sequence, ObjectStates)
        groups = sequence.group_ids_BN
        positions = super().positions(sequence, cache)
        return positions._replace(query_document_ids_BL=groups, key_document_ids_BM=groups)

    def forward(  # type: ignore[override]
        self,
        queries: ObjectStates,
        memory: HiddenStates,
        target: nn.Module,
        head: nn.Module,
        every_layer: bool = False,
    ) -> ObjectStates:
        """Decode queries.

        Args:
            queries: the object queries, as `Model.embed_target` returns them.
            memory: the encoder's output.
            target: the layer of the queries, which gives anchors their positions.
            head: the head that refines anchors after each block.
            every_layer: whether to return the outputs and anchors of all blocks, (blocks, B, N, …),
                each output after the stack's norm.
        """
        split = self.reads_long_rows_in_parts
        contexts = self.build_contexts(queries, None, split=split)
        across = cross_context(queries, memory, split=split, training=self.training)
        anchors = None
        if isinstance(target, AnchorQueriesLayer) and queries.anchor_BN4 is not None:
            anchors = AnchorRefinement(target, head, queries.anchor_BN4)
        x_BND = queries.x_BLD
        earlier: list[Tensor] = []
        outputs = [x_BND]
        for i, block in enumerate(self.blocks):
            x_BND = self.combine(earlier, x_BND)
            context: AttentionContext = contexts[self.context_of_block[i]]
            cross: AttentionContext | AnchorContext = across
            if anchors is not None:
                concatenates = isinstance(block.cross_attention.inner, ConditionalAttention)
                context, cross = anchors.place(x_BND, context, across, concatenates)
            x_BND = block(x_BND, context, memory.x_BLD, cross)
            if anchors is not None and i + 1 < len(self.blocks):
                anchors.move(x_BND)
            outputs.append(x_BND)
        outputs[-1] = self.norm(self.combine(earlier, x_BND))
        references = None if anchors is None else anchors.references
        if every_layer:
            normed = [self.norm(each_BND) for each_BND in outputs[1:-1]]
            return replace(
                queries,
                x_BLD=torch.stack([*normed, outputs[-1]]),
                anchor_BN4=None if references is None else torch.stack(references),
            )
        return replace(
            queries,
            x_BLD=outputs[-1],
            anchor_BN4=None if references is None else references[-1],
            layer_outputs=tuple(outputs[i] for i in self.layers),
        )


class AnchorRefinement:
    """The boxes of one forward pass."""

    def __init__(self, target: AnchorQueriesLayer, head: nn.Module, anchor_BN4: Tensor) -> None:
        self.target = target
        self.head = head
        self.anchor_BN4 = anchor_BN4
        # The anchors that the output of each block refines.
        self.references = [anchor_BN4]

    def place(
        self,
        x_BND: Tensor,
        context: AttentionContext,
        across: AttentionContext,
        concatenates: bool,
    ) -> tuple[AttentionContext, AttentionContext | AnchorContext]:
        """Return the contexts of self-attention and cross-attention with the positions of the
        boxes.
        """
        first = len(self.references) == 1
        position_BND, centre_BND = self.target.place(x_BND, self.anchor_BN4, first)
        context = context._replace(position_BLD=position_BND)
        across = across._replace(position_BLD=position_BND)
        return context, AnchorContext(across, centre_BND) if concatenates else across

    def move(self, x_BND: Tensor) -> None:
        """Return the refined boxes for the next block, without gradient."""
        moved_BN4 = self.anchor_BN4
        if isinstance(self.head, DetectionHeadLayer):
            offset_BN4 = self.head.box_offset(x_BND)
            moved_BN4 = (offset_BN4 + inverse_sigmoid(moved_BN4)).sigmoid()
        self.references.append(moved_BN4)
        self.anchor_BN4 = moved_BN4.detach()
