"""A sequence of vectors with all that travels beside them."""

from typing import NamedTuple

import torch
from torch import Tensor

from ..kernels.keyed_random import DocumentStarts, Keys, cell_keys, cell_numbers, row_keys


class HiddenStates(NamedTuple):
    """What the four verbs hand on. Padding stands at either end of a row, not between tokens; a document is one run of tokens."""

    x_BLD: Tensor
    attention_mask_BL: Tensor | None = None  # False: padding; None: no token is
    document_ids_BL: Tensor | None = None  # 0 at padding; None: a row is one document
    position_BL: Tensor | None = None  # for relative positions; None: 0, 1, 2, …
    query_key_position_BLD: Tensor | None = (
        None  # added to queries and keys at every attention (DETR)
    )
    grid: tuple[int, int] | None = None  # rows and columns, where the tokens are an image
    layer_outputs: tuple[
        Tensor, ...
    ] = ()  # outputs of the layers that `Model.layer_mix` names, in its order
    anchor_BL4: Tensor | None = None  # each query's box: centre, width and height (DAB-DETR)
    group_ids_BL: Tensor | None = None  # as documents: groups of queries (DN-DETR)
    layer_anchors: tuple[Tensor, ...] = ()  # of each of these outputs, the boxes that it refines

    def select(self, index_BS: Tensor) -> "HiddenStates":
        """Only some tokens, as MAE does with patches; each keeps its position."""

        def pick(t: Tensor | None) -> Tensor | None:
            if t is None:
                return None
            t = t.expand(len(index_BS), *t.shape[1:])
            return t.gather(
                1, index_BS if t.dim() == 2 else index_BS[..., None].expand(-1, -1, t.shape[2])
            )

        position_BS = index_BS if self.position_BL is None else pick(self.position_BL)
        x_BSD = pick(self.x_BLD)
        assert x_BSD is not None
        return HiddenStates(
            x_BSD,
            pick(self.attention_mask_BL),
            pick(self.document_ids_BL),
            position_BS,
            pick(self.query_key_position_BLD),
        )


def sequence_keys(sequence: HiddenStates, memory: HiddenStates | None = None) -> Keys:
    """Of the tokens of a sequence; `memory`: what they look at, where that is another sequence."""
    (B, L, _), ids_BL = sequence.x_BLD.shape, sequence.document_ids_BL
    if sequence.grid is not None and sequence.attention_mask_BL is not None:
        return cell_keys(sequence.attention_mask_BL, sequence.grid)
    keys = row_keys(B, L, sequence.x_BLD.device, ids_BL)
    if memory is None:
        return keys
    if memory.grid is not None and memory.attention_mask_BL is not None:
        return Keys(keys.key_BL, cells_BM=cell_numbers(memory.attention_mask_BL, memory.grid))
    if keys.documents is None or ids_BL is None or memory.document_ids_BL is None:
        return keys._replace(documents=None)
    B, M = memory.document_ids_BL.shape
    slot_BM = torch.arange(M, device=ids_BL.device).expand(B, M)
    many = max(M, L) + 1  # documents of a row, padding included
    first_BD = torch.zeros(B, many, dtype=torch.long, device=ids_BL.device).scatter_reduce(
        1, memory.document_ids_BL.long(), slot_BM, "amin", include_self=False
    )
    return keys._replace(documents=DocumentStarts(first_BD.gather(1, ids_BL.long())))
