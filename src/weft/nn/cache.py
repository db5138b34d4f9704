"""The key-value cache for decoding: allocated once, and bounded by the window of windowed
attention.
"""

import torch
from torch import Tensor

from .. import spec as S
from ..spec.attention import head_dims
from .kernels.masks import positions_of_tokens

ROLLBACK_TOKENS = 32  # tokens that a rollback can remove after a window has dropped older ones


class CacheSlots:
    """The tokens stored for blocks of one pattern: all, or twice the window, so that they rarely
    move.
    """

    def __init__(self, pattern: S.Pattern, capacity: int) -> None:
        self.before = None if pattern.reach is None else pattern.reach + ROLLBACK_TOKENS
        self.size = capacity if self.before is None else min(capacity, 2 * self.before)
        # the range of stored tokens
        self.begin = 0
        self.end = 0
        # the number of tokens added last, and of tokens dropped for them
        self.length = 0
        self.dropped = 0

    def full(self, length: int) -> bool:
        return self.before is not None and self.end + length - self.begin > self.size

    def place(self, length: int, begin: int) -> None:
        """Drop the tokens before `begin` if needed to store `length` new ones."""
        self.length = length
        self.dropped = max(begin - self.begin, 0)
        self.begin = self.begin + self.dropped
        self.end = self.end + length


class LayerCache:
    """The keys and values of one block, and those of the encoder output, computed at the first
    step.
    """

    def __init__(self, slots: CacheSlots, keys_BGMK: Tensor, values_BGMK: Tensor) -> None:
        self.slots = slots
        self.keys_BGMK = keys_BGMK
        self.values_BGMK = values_BGMK
        # One row per sentence, which its beams share.
        self.memory: tuple[Tensor, Tensor] | None = None

    def extend(self, k_BGMK: Tensor, v_BGMK: Tensor) -> tuple[Tensor, Tensor]:
        start, end = self.make_room()
        self.keys_BGMK[:, :, start:end] = k_BGMK
        self.values_BGMK[:, :, start:end] = v_BGMK
        return self.keys_BGMK[:, :, :end], self.values_BGMK[:, :, :end]

    def make_room(self) -> tuple[int, int]:
        """Return the slots of new tokens, after dropping tokens that no window attends to."""
        slots = self.slots
        end = slots.end - slots.begin
        if slots.dropped or end > self.keys_BGMK.shape[2]:
            self.keys_BGMK, self.values_BGMK = (
                shift_slots(t, slots, end) for t in (self.keys_BGMK, self.values_BGMK)
            )
        return end - slots.length, end

    def remember(self, k_BGMK: Tensor, v_BGMK: Tensor) -> None:
        self.memory = k_BGMK, v_BGMK

    def take(self, row_B: Tensor, moved_B: Tensor, same: int, sentence_B: Tensor | None) -> None:
        start = max(same - self.slots.begin, 0)
        end = self.slots.end - self.slots.begin
        self.keys_BGMK, self.values_BGMK = (
            gather_rows(t, row_B, moved_B, start, end) for t in (self.keys_BGMK, self.values_BGMK)
        )
        if self.memory is not None and sentence_B is not None:
            self.memory = self.memory[0][sentence_B], self.memory[1][sentence_B]


def shift_slots(held_BGMK: Tensor, slots: CacheSlots, end: int) -> Tensor:
    B, G, _, K = held_BGMK.shape
    kept_slots = end - slots.length
    moved_BGMK = held_BGMK.new_empty(B, G, max(slots.size, end), K)
    moved_BGMK[:, :, :kept_slots] = held_BGMK[:, :, slots.dropped : slots.dropped + kept_slots]
    return moved_BGMK


def gather_rows(held_BGMK: Tensor, row_B: Tensor, moved_B: Tensor, start: int, end: int) -> Tensor:
    """Copy row `row_B[i]` to row i. Unchanged rows cost nothing; tokens before `start` are already
    equal.
    """
    if len(row_B) > len(held_BGMK):
        made_BGMK = held_BGMK.new_empty(len(row_B), *held_BGMK.shape[1:])
        made_BGMK[:, :, :end] = held_BGMK[row_B, :, :end]
        return made_BGMK
    made_BGMK = held_BGMK[: len(row_B)]
    if len(moved_B) and start < end:
        made_BGMK[moved_B, :, start:end] = held_BGMK[row_B[moved_B], :, start:end]
    return made_BGMK


class KVCache:
    """The cache of a decoder. Positions count the tokens of each row, so prompts may be padded on
    either side.
    """

    def __init__(
        self, spec: S.Spec, batch: int, capacity: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        if spec.decoder is None:
            raise ValueError("the model has no decoder and so no cache; call it without one")
        self.blocks: list[LayerCache] = []
        self.slots: dict[object, CacheSlots] = {}
        for b in spec.decoder.blocks:
            a = b.attention.inner
            assert isinstance(a, S.Attention)
            if a.pattern.looks_ahead:
                raise ValueError(
                    f"pattern {type(a.pattern).__name__} cannot decode token by token; use a model "
                    "with CausalAttention or SlidingWindow(after=0)"
                )
            key, value, groups = head_dims(a, spec.width)
            slots = self.slots.setdefault(a.pattern, CacheSlots(a.pattern, capacity))
            keys, values = (
                torch.empty(batch, groups, slots.size, w, dtype=dtype, device=device)
                for w in (key, value)
            )
            self.blocks.append(LayerCache(slots, keys, values))
        reads = spec.source if spec.encoder is None else spec.target
        positions = getattr(reads, "positions", None)
        limit = positions.max_length if isinstance(positions, S.InputPositions) else None
        if limit is not None and capacity > limit:
            raise ValueError(
                f"a cache of {capacity} tokens exceeds the model's longest row of {limit}; give a "
                "smaller one"
            )
        self.position_BM = torch.zeros(batch, capacity, dtype=torch.long, device=device)
        self.attention_mask_BM = torch.ones(batch, capacity, dtype=torch.bool, device=device)
        self.next_B = torch.zeros(batch, 1, dtype=torch.long, device=device)
        # The number of first tokens that two rows are known to share.
        self.shared_prefix_BB = torch.zeros(batch, batch, dtype=torch.long)
        self.padded = False
        self.length = 0

    def reserve(
        self, length: int, attention_mask_BL: Tensor | None, document_ids_BL: Tensor | None = None
    ) -> Tensor:
        """Return the positions of `length` new tokens."""
        if document_ids_BL is not None:
            raise ValueError("a cache decodes one document per row; set document_ids to None")
        end = self.length + length
        if end > self.position_BM.shape[1]:
            raise ValueError(
                f"the cache has a capacity of {self.position_BM.shape[1]} tokens, not {end}; "
                "create a larger one"
            )
        for slots in self.slots.values():
            slots.place(length, self.first_visible(slots.before) if slots.full(length) else 0)
        if attention_mask_BL is None:
            position_BL = (
                self.next_B
                if length == 1
                else self.next_B + torch.arange(length, device=self.next_B.device)
            )
            self.next_B = self.next_B + length
        else:
            position_BL = self.next_B + positions_of_tokens(attention_mask_BL)
            self.next_B = self.next_B + attention_mask_BL.sum(1, keepdim=True)
            self.attention_mask_BM[:, self.length : end] = attention_mask_BL
            self.padded = True
        self.position_BM[:, self.length : end] = position_BL
        self.length = end
        return position_BL

    def first_visible(self, before: int | None) -> int:
        """Return the first token that a window can attend to from here on, in any row."""
        assert before is not None
        if not self.padded:
            return self.length - before
        near_BM = self.attention_mask_BM[:, : self.length] & (
            self.position_BM[:, : self.length] >= self.next_B - before
        )
        return int(near_BM.any(0).long().argmax())

    def first_slot(self, pattern: object) -> int:
        """Return the first token that blocks of this pattern store."""
        return self.slots[pattern].begin

    def reorder(self, row_B: Tensor) -> None:
        """Reorder the cache: row i continues from row `row_B[i]`; rows may be removed. Beams that
        share encoder outputs stay together, in the same number.
        """
        sentence_B = None
        memory = self.blocks[0].memory
        if memory is not None:
            beams = len(self.next_B) // len(memory[0])
            sentence_B = row_B[::beams] // beams
            if torch.equal(sentence_B, torch.arange(len(memory[0]), device=row_B.device)):
                sentence_B = None
        self.gather_rows(row_B, sentence_B)

    def multiply(self, num_beams: int) -> None:
        """Repeat each row `beams` times, in adjacent rows that share encoder outputs."""
        self.gather_rows(
            torch.arange(len(self.next_B), device=self.next_B.device).repeat_interleave(num_beams),
            None,
        )

    def gather_rows(self, row_B: Tensor, sentence_B: Tensor | None) -> None:
        """Move rows. Beams of one sentence differ only in their last tokens, so only these are
        copied.
        """
        row = row_B.cpu()
        place = torch.arange(len(row_B))
        moved = (row != place).nonzero()[:, 0]
        here = moved[moved < len(self.shared_prefix_BB)]
        same = (
            int(self.shared_prefix_BB[here, row[here]].min())
            if len(here) == len(moved) and len(moved)
            else 0
        )
        for block in self.blocks:
            block.take(row_B, moved.to(row_B.device), same, sentence_B)
        self.shared_prefix_BB = self.shared_prefix_BB[row][:, row].masked_fill(
            row[:, None] == row, self.length
        )
        self.position_BM = self.position_BM[row_B]
        self.attention_mask_BM = self.attention_mask_BM[row_B]
        self.next_B = self.next_B[row_B]

    def rollback(self, count: int) -> None:
        """Remove the last `count` tokens."""
        start = self.length - count
        assert count <= ROLLBACK_TOKENS or not any(slots.begin for slots in self.slots.values())
        self.next_B = self.next_B - self.attention_mask_BM[:, start : self.length].sum(
            1, keepdim=True
        )
        self.attention_mask_BM[:, start : self.length] = True
        self.length = start
        self.shared_prefix_BB.clamp_(max=start)
        for slots in self.slots.values():
            slots.end = start
