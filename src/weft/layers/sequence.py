"""A sequence of vectors with all that travels beside them."""
from typing import NamedTuple

import torch
from torch import Tensor


class Sequence(NamedTuple):
    """What the four verbs hand on. `keep` hides padding (False or 0) at either end of a row, not between tokens;
    whole numbers also part packed documents, each one run of tokens."""
    x_BLD: Tensor
    keep_BL: Tensor | None = None
    position_BL: Tensor | None = None      # for relative positions; None: 0, 1, 2, …
    place_BLD: Tensor | None = None        # added to queries and keys at every attention (DETR)
    grid: tuple[int, int] | None = None    # rows and columns, where the tokens are an image
    layers: tuple[Tensor, ...] = ()        # outputs of the layers that `Model.features` names, in its order

    def take(self, index_BS: Tensor) -> "Sequence":
        """Only some tokens, as MAE does with patches; each keeps its position."""
        def pick(t: Tensor | None) -> Tensor | None:
            if t is None:
                return None
            t = t.expand(len(index_BS), *t.shape[1:])
            return t.gather(1, index_BS if t.dim() == 2 else index_BS[..., None].expand(-1, -1, t.shape[2]))
        position_BS = index_BS if self.position_BL is None else pick(self.position_BL)
        x_BSD = pick(self.x_BLD)
        assert x_BSD is not None
        return Sequence(x_BSD, pick(self.keep_BL), position_BS, pick(self.place_BLD))


def count_positions(keep_BL: Tensor) -> Tensor:
    """0, 1, 2, … over the kept tokens of a row, starting again at every document."""
    if keep_BL.dtype == torch.bool:
        return (keep_BL.long().cumsum(1) - 1).clamp(min=0)
    slot_L = torch.arange(keep_BL.shape[1], device=keep_BL.device)
    begins_BL = torch.ones_like(keep_BL, dtype=torch.bool)
    begins_BL[:, 1:] = keep_BL[:, 1:] != keep_BL[:, :-1]
    return (slot_L - torch.where(begins_BL, slot_L, 0).cummax(1).values).masked_fill(keep_BL == 0, 0)
