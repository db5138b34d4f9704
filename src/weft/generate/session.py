"""Decoding sessions: incremental forward passes of a batch with a key-value cache."""

import re
from collections.abc import Iterator
from collections.abc import Sequence as Many
from dataclasses import replace

import torch
from torch import Tensor

from .. import spec as S
from ..nn.layers.sequence import HiddenStates
from ..nn.model import Model
from ..support.console import count_of

TokenRows = Many[Many[int]]
# prompt tokens per forward pass: bounds the mask, and windowed caches shrink in between
PREFILL_CHUNK = 2048
NAN_LOGITS = (
    "the model's logits are NaN or infinite: its training diverged; use an earlier checkpoint"
)


class DecodingSession:
    """A batch that is being decoded. The cache keeps the keys and values of past tokens; rows can
    be dropped, repeated and reordered.
    """

    def __init__(
        self, model: Model, batch: int, capacity: int, memory: HiddenStates | None = None
    ) -> None:
        self.model = model
        self.memory = memory
        self.cache = model.new_cache(batch, capacity)

    def __call__(
        self, ids_BL: Tensor, attention_mask_BL: Tensor | None = None, last: int = 1
    ) -> Tensor:
        """Return the logits after each of the `last` tokens: (B, last, V) in float32 or better."""
        pieces = ids_BL.split(PREFILL_CHUNK, 1)
        masks = (
            [None] * len(pieces)
            if attention_mask_BL is None
            else attention_mask_BL.split(PREFILL_CHUNK, 1)
        )
        x_BLD = torch.cat(
            [self.read(ids, mask) for ids, mask in zip(pieces, masks, strict=True)], 1
        )
        logits_BLV = self.model.read(HiddenStates(x_BLD[:, -last:]))
        assert isinstance(logits_BLV, Tensor)
        return logits_BLV if logits_BLV.dtype == torch.float64 else logits_BLV.float()

    def read(self, ids_BL: Tensor, mask_BL: Tensor | None) -> Tensor:
        model = self.model
        cache = self.cache
        if self.memory is None:
            return model.decode(
                model.embed(ids_BL, attention_mask=mask_BL, cache=cache), cache=cache
            ).x_BLD
        return model.decode(
            model.embed_target(ids_BL, self.memory, attention_mask=mask_BL, cache=cache),
            self.memory,
            cache=cache,
        ).x_BLD

    def repeat_rows(self, num_beams: int) -> None:
        """Repeat each row `num_beams` times in place; copies share the encoder's output."""
        self.cache.multiply(num_beams)

    def reorder(self, row_B: Tensor) -> None:
        """Reorder the rows: row i continues from row `row_B[i]`."""
        if self.memory is not None:
            beams = len(self.cache.next_B) // len(self.memory.x_BLD)
            sentence_B = row_B[::beams] // beams
            mask_BL = self.memory.attention_mask_BL
            self.memory = replace(
                self.memory,
                x_BLD=self.memory.x_BLD[sentence_B],
                attention_mask_BL=None if mask_BL is None else mask_BL[sentence_B],
            )
        self.cache.reorder(row_B)

    def rollback(self, count: int) -> None:
        self.cache.rollback(count)


def open_session(
    model: Model, inputs: TokenRows, decoder_inputs: TokenRows | None, max_new_tokens: int
) -> tuple[DecodingSession, list[list[int]]]:
    """Open a session with cache for `max_new_tokens` more tokens. An encoder-decoder encodes
    `inputs`, and its decoder starts with `decoder_inputs`; a decoder starts with `inputs`.

    Returns:
        The session, and the tokens that the decoder reads first.
    """
    check_prompts(model, inputs, max_new_tokens)
    device = model.token_embedding_VD.device
    memory = None
    if model.encoder is not None:
        ids_BL, mask_BL = pad_rows(inputs, device, left=False)
        memory = model.encode(model.embed(ids_BL, attention_mask=mask_BL))
        inputs = decoder_inputs or [[decoder_start(model)]] * len(inputs)
        check_prompts(model, inputs, max_new_tokens)
        if len(inputs) != len(ids_BL):
            raise ValueError(
                f"{len(inputs)} decoder_inputs for {len(ids_BL)} inputs; give one per input"
            )
    elif decoder_inputs:
        raise ValueError(
            "decoder_inputs are for encoder-decoder models; put the tokens before the prompts"
        )
    length = max(map(len, inputs))
    check_length(model, length, max_new_tokens)
    try:
        session = DecodingSession(model, len(inputs), length + max_new_tokens, memory)
    except (RuntimeError, TypeError, MemoryError) as error:
        if not is_memory_error(error):
            raise
        raise ValueError(
            f"max_new_tokens = {max_new_tokens:,}: the key-value cache does not fit into memory "
            f"for {count_of(len(inputs), 'prompt')}; give fewer tokens, or a smaller batch"
        ) from None
    return session, [list(row) for row in inputs]


def is_memory_error(error: Exception) -> bool:
    """Return whether memory ran out, or a size is beyond 64 bits: on the CPU torch has no type of
    error for either.
    """
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return bool(re.search("allocate memory|out of memory|overflow", str(error), re.IGNORECASE))


def prefill(
    model: Model, inputs: TokenRows, decoder_inputs: TokenRows | None, max_new_tokens: int
) -> tuple[DecodingSession, Tensor, list[list[int]]]:
    """Open a session and read all prompts in one forward pass. Also returns the logits of the next
    token of each row, (B, V).
    """
    session, prompts = open_session(model, inputs, decoder_inputs, max_new_tokens)
    padded = pad_rows(prompts, model.token_embedding_VD.device, left=True)
    return session, session(*padded)[:, -1], prompts


def pad_rows(rows: TokenRows, device: torch.device, left: bool) -> tuple[Tensor, Tensor | None]:
    """Pad rows to one length; the attention mask is None where nothing is padded. Padding on the
    left aligns the last tokens of all rows.
    """
    lengths = [len(row) for row in rows]
    side = max(lengths)
    if min(lengths) == side:
        return torch.tensor(rows, device=device), None
    holes = [[0] * (side - n) for n in lengths]
    ids = [[*h, *row] if left else [*row, *h] for h, row in zip(holes, rows, strict=True)]
    slot_L = torch.arange(side, device=device)
    length_B1 = torch.tensor(lengths, device=device)[:, None]
    mask_BL = slot_L >= side - length_B1 if left else slot_L < length_B1
    return torch.tensor(ids, device=device), mask_BL


def decoder_start(model: Model) -> int:
    start = model.spec.special_tokens.decoder_start
    if start is None:
        raise ValueError("the spec has no special_tokens.decoder_start; give decoder_inputs")
    return start


def check_prompts(model: Model, rows: TokenRows, max_new_tokens: int) -> None:
    """Raise ValueError for a model that cannot generate, or a prompt that it cannot read."""
    if model.decoder is None:
        raise ValueError(
            "this model is an encoder and cannot generate text; use weft fill for masked tokens, "
            "or weft classify, tag, answer or embed"
        )
    if not isinstance(model.spec.head, S.LMHead):
        raise ValueError(
            "this model has no decoder with a vocabulary: its head is "
            f"{type(model.spec.head).__name__}"
        )
    if model.training:
        raise ValueError(
            "the model is in training mode, so dropout is active; call model.eval() first"
        )
    if max_new_tokens < 1:
        raise ValueError(f"max_new_tokens = {max_new_tokens}; give at least 1")
    size = model.spec.vocab_size
    for i, row in enumerate(rows):
        if not len(row):
            raise ValueError(f"prompt {i} is empty; give at least one token")
        if min(row) < 0 or max(row) >= size:
            raise ValueError(
                f"prompt {i} contains a token outside the vocabulary of {size} tokens; encode it "
                "with the model's tokenizer"
            )


def max_positions(model: Model) -> int | None:
    """Return how many tokens a decoder can read, where its positions are a table; else None."""
    reads = model.spec.source if model.spec.encoder is None else model.spec.target
    positions = getattr(reads, "positions", None)
    return positions.max_length if isinstance(positions, S.InputPositions) else None


def per_row_limits(max_new_tokens: int | Many[int], rows: int) -> list[int]:
    """Return one limit per row."""
    limits = [max_new_tokens] * rows if isinstance(max_new_tokens, int) else [*max_new_tokens]
    if len(limits) != rows or not all(isinstance(n, int) and n > 0 for n in limits):
        several = f", or one for each of the {rows} prompts" if rows > 1 else ""
        raise ValueError(
            f"max_new_tokens = {max_new_tokens!r}: give a number of at least 1{several}"
        )
    return limits


def batch_by_length(
    lengths: Many[int], limits: Many[int], size: int, count: int | None
) -> Iterator[list[int]]:
    """Yield batches of up to `size` rows of similar length. The longest prompt and the longest
    answer of a batch fit into `count` positions, so that the limit of a row does not depend on its
    batch.
    """
    group: list[int] = []
    for i in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        if len(group) == size or (
            group and count is not None and lengths[i] + max(limits[j] for j in [*group, i]) > count
        ):
            yield group
            group = []
        group.append(i)
    if group:
        yield group


def check_length(model: Model, length: int, max_new_tokens: int) -> None:
    count = max_positions(model)
    if count is not None and length + max_new_tokens > count:
        raise ValueError(
            f"{length} prompt tokens + {max_new_tokens} new tokens exceed the model's {count} "
            f"positions; "
            f"{max(count - length, 0)} new tokens fit; shorten the prompt or --max-new-tokens"
        )
