"""Hidden states of a sequence with masks, documents and positions."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..kernels.keyed_random import DocumentStarts, Keys, cell_keys, cell_numbers, row_keys


@dataclass(frozen=True, eq=False)
class HiddenStates:
    """The result of each stage of a model. Padding is at either end of a row, not between tokens; a
    document is consecutive tokens.

    Attributes:
        x_BLD: one vector per token.
        attention_mask_BL: False at padding; None: no padding.
        document_ids_BL: 0 at padding; None: a row is one document.
        position_BL: relative positions; None: 0, 1, 2, …
        query_key_position_BLD: added to queries and keys at every attention.
        grid: rows and columns, if the tokens are an image.
        layer_outputs: outputs of the layers of `Spec.layer_mix`, in its order.
    """

    x_BLD: Tensor
    attention_mask_BL: Tensor | None = None
    document_ids_BL: Tensor | None = None
    position_BL: Tensor | None = None
    query_key_position_BLD: Tensor | None = None
    grid: tuple[int, int] | None = None
    layer_outputs: tuple[Tensor, ...] = ()

    def select(self, index_BS: Tensor) -> "HiddenStates":
        """Return a subset of the tokens, as MAE does with patches; each keeps its position, and the
        grid is lost.
        """

        def pick(t: Tensor | None) -> Tensor | None:
            return None if t is None else pick_tokens(t, index_BS)

        return replace(
            self,
            x_BLD=pick_tokens(self.x_BLD, index_BS),
            attention_mask_BL=pick(self.attention_mask_BL),
            document_ids_BL=pick(self.document_ids_BL),
            position_BL=index_BS if self.position_BL is None else pick(self.position_BL),
            query_key_position_BLD=pick(self.query_key_position_BLD),
            grid=None,
            layer_outputs=tuple(pick_tokens(each, index_BS) for each in self.layer_outputs),
        )


def pick_tokens(t: Tensor, index_BS: Tensor) -> Tensor:
    """Return t at the tokens `index_BS`; t is (B, L) or (B, L, D), where B may be 1 for all
    rows.
    """
    t = t.expand(len(index_BS), *t.shape[1:])
    if t.dim() == 2:
        return t.gather(1, index_BS)
    return t.gather(1, index_BS[..., None].expand(-1, -1, t.shape[2]))


def sequence_keys(sequence: HiddenStates, memory: HiddenStates | None = None) -> Keys:
    """Of the tokens of a sequence; `memory`: what they look at, where that is another sequence."""
    B, L, _ = sequence.x_BLD.shape
    ids_BL = sequence.document_ids_BL
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
    # Documents of a row, padding included.
    num_slots = max(M, L) + 1
    first_BD = torch.zeros(B, num_slots, dtype=torch.long, device=ids_BL.device).scatter_reduce(
        1, memory.document_ids_BL.long(), slot_BM, "amin", include_self=False
    )
    return keys._replace(documents=DocumentStarts(first_BD.gather(1, ids_BL.long())))
