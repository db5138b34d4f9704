"""Random numbers keyed by sample: they depend on the sample and the position in it, not on other
rows, padding or the process that computes them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .masks import positions_within_documents

CPU = torch.device("cpu")
MASK_LEVELS = 1 << 16  # a draw is 16 bits of a random word, so a rate is a whole number of 65536ths
CHUNK = 1 << 15  # words per chunk, so that they fit in the CPU cache
# as torch's signed words
MULTIPLIER_1, MULTIPLIER_2 = (c - (1 << 64) for c in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


class DocumentStarts:
    """The position, among the keys of an attention, at which each query's document begins; dropout
    of its weights is drawn from there on.
    """

    def __init__(self, begin_BL: Tensor) -> None:
        self.begin_BL = begin_BL

    @cached_property
    def runs(self) -> list[tuple[int, int, int, int]]:
        """Return ranges of queries of one document: row, first, end, and where its keys begin."""
        runs = []
        for row, begin_L in enumerate(self.begin_BL):
            begin, count = torch.unique_consecutive(begin_L, return_counts=True)
            end = count.cumsum(0)
            runs += [
                (row, e - c, e, b)
                for b, c, e in zip(begin.tolist(), count.tolist(), end.tolist(), strict=True)
            ]
        return runs


class Keys(NamedTuple):
    """One random word per token, the documents of packed rows, and cell numbers for padded
    images.
    """

    key_BL: Tensor
    documents: DocumentStarts | None = None
    cells_BM: Tensor | None = None


class CurrentKeys:
    """The random keys of the current forward pass, set by the trainer and, for its tokens, by each
    block.
    """

    samples: Tensor | None = (
        None  # (B) numbers of the samples, or (B, documents) in packed rows; None: 0, 1, 2, …
    )
    keys: Keys | None = None
    part: tuple[int, int] = (0, 1)  # which of how many equal parts of heads and hidden vectors


class use_part:
    """Context in which vectors are part `index` of `count` equal parts of longer ones, and heads
    are those of one part (tensor parallelism).
    """

    def __init__(self, index: int, count: int) -> None:
        self.part = (index, count)

    def __enter__(self) -> None:
        self.before = CurrentKeys.part
        CurrentKeys.part = self.part

    def __exit__(self, *_: object) -> None:
        CurrentKeys.part = self.before


@contextmanager
def sample_numbers(numbers: Tensor | None) -> Iterator[None]:
    """Context in which the rows of a batch are these samples. Column d of packed rows is the sample
    of document d; column 0 is padding.
    """
    before = CurrentKeys.samples
    CurrentKeys.samples = numbers
    try:
        yield
    finally:
        CurrentKeys.samples = before


class use_keys:
    """Context in which tokens draw with these keys. A class, since torch.compile handles it better
    than a generator.
    """

    def __init__(self, keys: Keys | None) -> None:
        self.keys = keys

    def __enter__(self) -> None:
        self.before = CurrentKeys.keys
        CurrentKeys.keys = self.keys or CurrentKeys.keys

    def __exit__(self, *_: object) -> None:
        CurrentKeys.keys = self.before


def mix_bits(x: Tensor) -> Tensor:
    """A bijection of 64-bit words whose values look random for neighbouring arguments: SplitMix64's
    (Steele et al. 2014, figure 17).
    """
    for shift, factor in ((30, MULTIPLIER_1), (27, MULTIPLIER_2)):
        x = (x ^ unsigned_shift(x, shift)) * factor
    return x ^ unsigned_shift(x, 31)


def unsigned_shift(x: Tensor, shift: int) -> Tensor:
    """The upper bits of a word, moved down; torch's own shift repeats the sign."""
    return (x >> shift) & ((1 << 64 - shift) - 1)


def indexed_words(x: Tensor, count: int) -> Tensor:
    """Return words for 0, 1, …, count - 1 in a new last dimension for each of x."""
    return word_at(x[..., None], torch.arange(count, device=x.device))


def word_at(x: Tensor, index: Tensor) -> Tensor:
    """Return the random word at a position of a stream."""
    return mix_bits(x + mix_bits(index + 1))


def sample_words(rows: int, device: torch.device) -> Tensor:
    """Return a random word per row, or per document of a row. A sample of several rows, such as one
    per ending, has a word for each.
    """
    numbers = CurrentKeys.samples
    if numbers is None or rows % len(numbers):
        numbers = torch.arange(rows, device=device)
    word = mix_bits(numbers.to(device))
    return (
        word
        if len(word) == rows
        else indexed_words(word, rows // len(word)).movedim(-1, 1).flatten(0, 1)
    )


def row_keys(
    rows: int, length: int, device: torch.device, document_ids_BL: Tensor | None = None
) -> Keys:
    word = sample_words(rows, device)
    if word.dim() == 1 or document_ids_BL is None:
        return Keys(
            indexed_words(word if word.dim() == 1 else word[:, min(1, word.shape[1] - 1)], length)
        )
    place_BL = positions_within_documents(document_ids_BL)
    key_BL = word_at(word.gather(1, document_ids_BL.long().clamp(max=word.shape[1] - 1)), place_BL)
    return Keys(
        key_BL,
        DocumentStarts(
            (torch.arange(length, device=device) - place_BL).masked_fill(document_ids_BL == 0, 0)
        ),
    )


def cell_keys(mask_BL: Tensor, grid: tuple[int, int]) -> Keys:
    """Of the cells of padded images, which look at each other."""
    cells_BL = cell_numbers(mask_BL, grid)
    word_B = sample_words(len(mask_BL), mask_BL.device)
    return Keys(word_at(word_B[:, None], cells_BL), cells_BM=cells_BL)


def cell_numbers(mask_BL: Tensor, grid: tuple[int, int]) -> Tensor:
    """Return cell numbers, counted row by row as if the image were alone."""
    rows, columns = grid
    width_B1: Tensor = mask_BL.unflatten(1, grid)[:, 0].sum(1, keepdim=True)
    row_L = torch.arange(rows, device=mask_BL.device).repeat_interleave(columns)
    column_L = torch.arange(columns, device=mask_BL.device).repeat(rows)
    return row_L * width_B1 + column_L


def keys_for_shape(shape: torch.Size, device: torch.device) -> Keys:
    """Return the keys for vectors of shape (B, …, n): those of the current tokens or, if the shapes
    differ, those of the rows.
    """
    rows = shape[0] if len(shape) > 1 else 1
    length = shape[1:-1].numel()
    if CurrentKeys.keys is not None and CurrentKeys.keys.key_BL.shape == (rows, length):
        return CurrentKeys.keys
    return row_keys(rows, length, device)


def call_word(device: torch.device) -> Tensor:
    """Return a new number of PyTorch's generator per call, the same for a micro-batch as for the
    whole batch. It is the CPU's generator, so that every device drops the same values; copying one
    number does not wait for the device.
    """
    return torch.randint(1 << 62, ()).to(device, non_blocking=True)


def random_mask(
    shape: torch.Size, lanes: int, keys: Keys | None = None, device: torch.device = CPU
) -> Tensor:
    """Return, for vectors (B, …, n), ones with probability lanes / 65536, else zeros, in 16
    bits.
    """
    keys = keys or keys_for_shape(shape, device)
    (index, count) = CurrentKeys.part
    n = shape[-1]
    whole_B1LN = random_head_masks(keys._replace(documents=None), 1, n * count, lanes)
    return whole_B1LN[:, 0, :, n * index : n * (index + 1)].reshape(shape)


def random_attention_mask(shape_BHLM: torch.Size, lanes: int, device: torch.device = CPU) -> Tensor:
    """The same for the attention weights."""
    B, H, L, M = shape_BHLM
    (index, count) = CurrentKeys.part
    keys = keys_for_shape(torch.Size((B, L, M)), device)
    kept_BHLM = random_head_masks(keys, H * count, M, lanes, slice(H * index, H * (index + 1)))
    if keys.cells_BM is None:
        return kept_BHLM
    return kept_BHLM.gather(-1, keys.cells_BM[:, None, None].expand(B, H, L, M))


def random_head_masks(
    keys: Keys, heads: int, n: int, lanes: int, part: slice = slice(None)
) -> Tensor:
    """(B, heads, L, n), or only a part of the heads. Word j of a vector is key · a_j + b_j, its
    upper half added to the lower: multiply-shift hashing, in which the numbers of two tokens are
    independent (Dietzfelbinger 1996, "Universal hashing and k-wise independent random variables via
    integer arithmetic without primes"). a_j and b_j belong to the call and the head, the key to the
    token.
    """
    device = keys.key_BL.device
    table_2H1W = indexed_words(
        indexed_words(call_word(device), 2 * heads).view(2, heads, 1)[:, part], -(-n // 4)
    )
    fast = device.type == "cpu" and not torch.compiler.is_compiling()
    return (random_mask_fast if fast else random_mask_slow)(
        keys, table_2H1W, n, lanes - MASK_LEVELS // 2
    )


def random_mask_slow(keys: Keys, table_2H1W: Tensor, n: int, least: int) -> Tensor:
    """On any device; fused where it is compiled."""
    word_BHLW = keys.key_BL[:, None, :, None] * table_2H1W[0] + table_2H1W[1]
    word_BHLW = word_BHLW ^ unsigned_shift(word_BHLW, 32)
    lane_BHLW4 = (word_BHLW[..., None] >> torch.arange(0, 64, 16, device=word_BHLW.device)) & 0xFFFF
    # as signed numbers compare
    kept_BHLN = ((lane_BHLW4 ^ 0x8000) < least + MASK_LEVELS // 2).flatten(-2).to(torch.int16)
    if keys.documents is not None:
        at_BLN = torch.arange(n, device=kept_BHLN.device) - keys.documents.begin_BL[..., None]
        kept_BHLN = kept_BHLN.gather(
            -1, at_BLN.clamp(min=0)[:, None].expand(-1, kept_BHLN.shape[1], -1, -1)
        )
    return kept_BHLN[..., :n]


def random_mask_fast(keys: Keys, table_2H1W: Tensor, n: int, least: int) -> Tensor:
    """Compute the same bits on the CPU without an intermediate copy."""
    (B, L) = keys.key_BL.shape
    (_, H, _, W) = table_2H1W.shape
    key_BL = as_uint64(keys.key_BL)
    (a_HW, b_HW) = as_uint64(table_2H1W[:, :, 0])
    if keys.documents is None:
        word_BHLW = np.empty((B, H, L, W), np.uint64)
        fill_words(word_BHLW, key_BL, a_HW, b_HW)
        return torch.from_numpy(word_BHLW.view(np.int16)).lt_(least)[..., :n]
    kept_BHLN = torch.zeros(B, H, L, n, dtype=torch.int16)
    for row, first, end, begin in keys.documents.runs:
        word_1HLW = np.empty((1, H, end - first, -(-(n - begin) // 4)), np.uint64)
        fill_words(
            word_1HLW,
            key_BL[row : row + 1, first:end],
            a_HW[:, : word_1HLW.shape[-1]],
            b_HW[:, : word_1HLW.shape[-1]],
        )
        kept_BHLN[row, :, first:end, begin:] = torch.from_numpy(word_1HLW.view(np.int16)).lt_(
            least
        )[0, ..., : n - begin]
    return kept_BHLN


def as_uint64(x: Tensor) -> np.ndarray:
    words: np.ndarray = x.contiguous().numpy().view(np.uint64)
    return words


def fill_words(
    word_BHLW: np.ndarray, key_BL: np.ndarray, a_HW: np.ndarray, b_HW: np.ndarray
) -> None:
    """key · a + b, folded; short vectors are concatenated, so that the inner loop is long."""
    B, H, L, W = word_BHLW.shape
    if W < 64 and L > 1:
        fill_words(
            word_BHLW.reshape(B, H, 1, L * W),
            np.repeat(key_BL, W, 1)[:, None],
            np.tile(a_HW, L),
            np.tile(b_HW, L),
        )
        return
    key_B1LW = (key_BL if key_BL.ndim == 3 else key_BL[..., None])[:, None]
    a_1H1W = a_HW[None, :, None]
    b_1H1W = b_HW[None, :, None]
    spare = np.empty(min(CHUNK + W, word_BHLW.size), np.uint64)
    for b, h, line in word_slices(B, H, L, W):
        word = word_BHLW[b, h, line]
        np.multiply(key_B1LW[b, :, line], a_1H1W[:, h], out=word)
        np.add(word, b_1H1W[:, h], out=word)
        upper = np.right_shift(word, 32, out=spare[: word.size].reshape(word.shape))
        np.bitwise_xor(word, upper, out=word)


def word_slices(B: int, H: int, L: int, W: int) -> Iterator[tuple[slice, slice, slice]]:
    """Slices of (B, H, L) of about `CHUNK` words."""
    size = max(H * L * W, 1)
    if size <= CHUNK:
        for b in range(0, B, CHUNK // size):
            yield slice(b, b + CHUNK // size), slice(None), slice(None)
        return
    step = max(CHUNK // W, 1)
    for b in range(B):
        for h in range(H):
            for line in range(0, L, step):
                yield slice(b, b + 1), slice(h, h + 1), slice(line, line + step)
