"""Keys and values kept while decoding: room is made once, each token is worked out once."""
import torch
from torch import Tensor

from .. import spec as S
from ..count import widths
from ..layers.sequence import count_positions


class BlockCache:
    """One block's stored keys and values; also those of the encoder's output, worked out at the first step."""

    def __init__(self, keys_BGMK: Tensor, values_BGMK: Tensor) -> None:
        self.keys_BGMK, self.values_BGMK, self.length = keys_BGMK, values_BGMK, 0
        self.memory: tuple[Tensor, Tensor] | None = None

    def extend(self, k_BGMK: Tensor, v_BGMK: Tensor) -> tuple[Tensor, Tensor]:
        end = self.length + k_BGMK.shape[2]
        if end > self.keys_BGMK.shape[2]:
            raise ValueError(f"the cache has room for {self.keys_BGMK.shape[2]} tokens, not {end}; make a larger one")
        self.keys_BGMK[:, :, self.length:end], self.values_BGMK[:, :, self.length:end] = k_BGMK, v_BGMK
        self.length = end
        return self.keys_BGMK[:, :, :end], self.values_BGMK[:, :, :end]

    def remember(self, k_BGMK: Tensor, v_BGMK: Tensor) -> None:
        self.memory = k_BGMK, v_BGMK


class Cache:
    """The whole decoder's. Positions count each row's own tokens, so a prompt may be padded on either side."""

    def __init__(self, s: S.Model, batch: int, room: int, dtype: torch.dtype, device: torch.device) -> None:
        if s.decoder is None:
            raise ValueError("only a decoder has a cache; this model has none")
        self.blocks: list[BlockCache] = []
        for b in s.decoder.blocks:
            a = b.attention.inner
            assert isinstance(a, S.Attention)
            if not (isinstance(a.pattern, S.Causal) or (isinstance(a.pattern, S.Window) and not a.pattern.after)):
                raise ValueError(f"attention of pattern {type(a.pattern).__name__} cannot decode one token at a time")
            key, value, groups = widths(a, s.width)
            self.blocks.append(BlockCache(*(torch.empty(batch, groups, room, w, dtype=dtype, device=device) for w in (key, value))))
        reads = s.source if s.encoder is None else s.target
        learned = getattr(reads, "positions", None)
        if isinstance(learned, S.Learned) and room > learned.count:
            raise ValueError(f"a cache of {room} tokens is longer than the {learned.count} learned positions")
        self.position_BM = torch.zeros(batch, room, dtype=torch.long, device=device)
        self.keep_BM = torch.ones(batch, room, dtype=torch.bool, device=device)
        self.next_B = torch.zeros(batch, 1, dtype=torch.long, device=device)
        self.padded, self.length = False, 0

    def place(self, length: int, keep_BL: Tensor | None) -> Tensor:
        """The positions of `length` new tokens."""
        end = self.length + length
        if end > self.position_BM.shape[1]:
            raise ValueError(f"the cache has room for {self.position_BM.shape[1]} tokens, not {end}; make a larger one")
        if keep_BL is None:
            position_BL = self.next_B + torch.arange(length, device=self.next_B.device)
            self.next_B = self.next_B + length
        elif keep_BL.dtype != torch.bool:
            raise ValueError("a cache decodes one document a row; give `keep` as booleans")
        else:
            kept_BL = keep_BL
            position_BL = self.next_B + count_positions(kept_BL)
            self.next_B = self.next_B + kept_BL.sum(1, keepdim=True)
            self.keep_BM[:, self.length:end], self.padded = kept_BL, True
        self.position_BM[:, self.length:end] = position_BL
        self.length = end
        return position_BL

    def reorder(self, row_B: Tensor) -> None:
        """Beam search: row i goes on from what row `row_B[i]` has read."""
        for block in self.blocks:
            end = block.length
            block.keys_BGMK[:, :, :end] = block.keys_BGMK[row_B, :, :end]
            block.values_BGMK[:, :, :end] = block.values_BGMK[row_B, :, :end]
            if block.memory is not None:
                block.memory = block.memory[0][row_B], block.memory[1][row_B]
        self.position_BM, self.keep_BM, self.next_B = self.position_BM[row_B], self.keep_BM[row_B], self.next_B[row_B]
