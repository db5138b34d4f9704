"""Random numbers that belong to samples: those of a number depend on its sample and its place in it, and on neither the rows beside it,
nor its padding, nor the process that computes it."""
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .sequence import Sequence, count_positions

CPU = torch.device("cpu")
LANES = 1 << 16                            # a draw is 16 bits of a random word, so a rate is a whole number of 65536ths
CHUNK = 1 << 15                            # words at once: they stay in the cache
FIRST, SECOND = (c - (1 << 64) for c in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB))    # as torch's signed words


class Documents:
    """Where, among the keys of an attention, each query's own document begins: its weights are drawn from there on."""

    def __init__(self, begin_BL: Tensor) -> None:
        self.begin_BL = begin_BL

    @cached_property
    def runs(self) -> list[tuple[int, int, int, int]]:
        """Runs of queries of one document: row, first, end, and where its keys begin."""
        found = []
        for row, begin_L in enumerate(self.begin_BL):
            begin, count = torch.unique_consecutive(begin_L, return_counts=True)
            end = count.cumsum(0)
            found += [(row, e - c, e, b) for b, c, e in zip(begin.tolist(), count.tolist(), end.tolist(), strict=True)]
        return found


class Keys(NamedTuple):
    """One random word per token, and the documents of packed rows."""
    key_BL: Tensor
    documents: Documents | None = None


class Current:
    """What the forward pass in progress draws with: set by the trainer, and by every block for the tokens that it reads."""
    samples: Tensor | None = None          # (B) numbers of the samples, or (B, documents) in packed rows; None: 0, 1, 2, …
    keys: Keys | None = None


@contextmanager
def samples(numbers: Tensor | None) -> Iterator[None]:
    """Inside, the rows of a batch are these samples. Column d of packed rows is the sample of document d; column 0 is padding."""
    before, Current.samples = Current.samples, numbers
    try:
        yield
    finally:
        Current.samples = before


class drawing:
    """Inside, tokens draw with these keys. A class, since a compiler reads one better than a generator."""

    def __init__(self, keys: Keys | None) -> None:
        self.keys = keys

    def __enter__(self) -> None:
        self.before, Current.keys = Current.keys, self.keys or Current.keys

    def __exit__(self, *_: object) -> None:
        Current.keys = self.before


def mix(x: Tensor) -> Tensor:
    """A bijection of 64-bit words whose values look random for neighbouring arguments: SplitMix64's (Steele et al. 2014, figure 17)."""
    for shift, factor in ((30, FIRST), (27, SECOND)):
        x = (x ^ above(x, shift)) * factor
    return x ^ above(x, 31)


def above(x: Tensor, shift: int) -> Tensor:
    """The upper bits of a word, moved down; torch's own shift repeats the sign."""
    return (x >> shift) & ((1 << 64 - shift) - 1)


def numbered(x: Tensor, count: int) -> Tensor:
    """Words for 0, 1, …, count - 1 beside each of x: a last dimension more."""
    return place(x[..., None], torch.arange(count, device=x.device))


def place(x: Tensor, index: Tensor) -> Tensor:
    """The random word at a place of a stream of them."""
    return mix(x + mix(index + 1))


def sample_words(rows: int, device: torch.device) -> Tensor:
    """A random word per row, or per document of a row. A sample of several rows, such as one row an ending, has a word for each."""
    numbers = Current.samples
    if numbers is None or rows % len(numbers):
        numbers = torch.arange(rows)
    word = mix(numbers.to(device))
    return word if len(word) == rows else numbered(word, rows // len(word)).movedim(-1, 1).flatten(0, 1)


def row_keys(rows: int, length: int, device: torch.device, keep_BL: Tensor | None = None) -> Keys:
    word = sample_words(rows, device)
    if word.dim() == 1 or keep_BL is None or keep_BL.dtype == torch.bool:
        return Keys(numbered(word if word.dim() == 1 else word[:, min(1, word.shape[1] - 1)], length))
    place_BL = count_positions(keep_BL)
    key_BL = place(word.gather(1, keep_BL.long().clamp(max=word.shape[1] - 1)), place_BL)
    return Keys(key_BL, Documents((torch.arange(length, device=device) - place_BL).masked_fill(keep_BL == 0, 0)))


def keys_of(sequence: Sequence, memory: Sequence | None = None) -> Keys:
    """Of the tokens of a sequence; `memory`: what they look at, where that is another sequence."""
    (B, L, _), keep_BL = sequence.x_BLD.shape, sequence.keep_BL
    keys = row_keys(B, L, sequence.x_BLD.device, keep_BL)
    if memory is None or keys.documents is None or keep_BL is None or memory.keep_BL is None:
        return keys if memory is None else keys._replace(documents=None)
    B, M = memory.keep_BL.shape
    slot_BM = torch.arange(M, device=keep_BL.device).expand(B, M)
    many = max(M, L) + 1                   # documents of a row, padding included
    first_BD = torch.zeros(B, many, dtype=torch.long, device=keep_BL.device).scatter_reduce(
        1, memory.keep_BL.long(), slot_BM, "amin", include_self=False)
    return keys._replace(documents=Documents(first_BD.gather(1, keep_BL.long())))


def keys_for(shape: torch.Size, device: torch.device) -> Keys:
    """For vectors of this shape, (B, …, n): those of the tokens being read or, where the shapes differ, those of the rows."""
    rows, length = (shape[0] if len(shape) > 1 else 1), shape[1:-1].numel()
    if Current.keys is not None and Current.keys.key_BL.shape == (rows, length):
        return Current.keys
    return row_keys(rows, length, device)


def call_word(device: torch.device) -> Tensor:
    """One more number of torch's generator: every call has its own, as many in a part of a batch as in the whole."""
    return torch.randint(1 << 62, ()).to(device)


def draw(shape: torch.Size, lanes: int, keys: Keys | None = None, device: torch.device = CPU) -> Tensor:
    """For vectors, (B, …, n): ones with probability lanes / 65536, else zeros, in 16 bits."""
    keys = keys or keys_for(shape, device)
    return draw_heads(keys._replace(documents=None), 1, shape[-1], lanes)[:, 0].reshape(shape)


def draw_weights(shape_BHLM: torch.Size, lanes: int, device: torch.device = CPU) -> Tensor:
    """The same for the attention weights."""
    B, H, L, M = shape_BHLM
    return draw_heads(keys_for(torch.Size((B, L, M)), device), H, M, lanes)


def draw_heads(keys: Keys, heads: int, n: int, lanes: int) -> Tensor:
    """(B, heads, L, n). Word j of a vector is key · a_j + b_j, its upper half added to the lower: multiply-shift hashing, in which the
    numbers of two tokens are independent (Dietzfelbinger 1996, "Universal hashing and k-wise independent random variables via integer
    arithmetic without primes"). a_j and b_j belong to the call and the head, the key to the token."""
    device = keys.key_BL.device
    table_2H1W = numbered(numbered(call_word(device), 2 * heads).view(2, heads, 1), -(-n // 4))
    fast = device.type == "cpu" and not torch.compiler.is_compiling()
    return (draw_fast if fast else draw_slow)(keys, table_2H1W, n, lanes - LANES // 2)


def draw_slow(keys: Keys, table_2H1W: Tensor, n: int, least: int) -> Tensor:
    """On any device; fused where it is compiled."""
    word_BHLW = keys.key_BL[:, None, :, None] * table_2H1W[0] + table_2H1W[1]
    word_BHLW = word_BHLW ^ above(word_BHLW, 32)
    lane_BHLW4 = (word_BHLW[..., None] >> torch.arange(0, 64, 16, device=word_BHLW.device)) & 0xFFFF
    kept_BHLN = ((lane_BHLW4 ^ 0x8000) < least + LANES // 2).flatten(-2).to(torch.int16)       # as signed numbers compare
    if keys.documents is not None:
        at_BLN = torch.arange(n, device=kept_BHLN.device) - keys.documents.begin_BL[..., None]
        kept_BHLN = kept_BHLN.gather(-1, at_BLN.clamp(min=0)[:, None].expand(-1, kept_BHLN.shape[1], -1, -1))
    return kept_BHLN[..., :n]


def draw_fast(keys: Keys, table_2H1W: Tensor, n: int, least: int) -> Tensor:
    """The same bits on the CPU, without a copy in between."""
    (B, L), (_, H, _, W) = keys.key_BL.shape, table_2H1W.shape
    key_BL, (a_HW, b_HW) = words_of(keys.key_BL), words_of(table_2H1W[:, :, 0])
    if keys.documents is None:
        word_BHLW = np.empty((B, H, L, W), np.uint64)
        fill(word_BHLW, key_BL, a_HW, b_HW)
        return torch.from_numpy(word_BHLW.view(np.int16)).lt_(least)[..., :n]
    kept_BHLN = torch.zeros(B, H, L, n, dtype=torch.int16)
    for row, first, end, begin in keys.documents.runs:
        word_1HLW = np.empty((1, H, end - first, -(-(n - begin) // 4)), np.uint64)
        fill(word_1HLW, key_BL[row:row + 1, first:end], a_HW[:, :word_1HLW.shape[-1]], b_HW[:, :word_1HLW.shape[-1]])
        kept_BHLN[row, :, first:end, begin:] = torch.from_numpy(word_1HLW.view(np.int16)).lt_(least)[0, ..., :n - begin]
    return kept_BHLN


def words_of(x: Tensor) -> np.ndarray:
    words: np.ndarray = x.contiguous().numpy().view(np.uint64)
    return words


def fill(word_BHLW: np.ndarray, key_BL: np.ndarray, a_HW: np.ndarray, b_HW: np.ndarray) -> None:
    """key · a + b, folded; short vectors are laid end to end, so that the inner loop is long."""
    B, H, L, W = word_BHLW.shape
    if W < 64 and L > 1:
        fill(word_BHLW.reshape(B, H, 1, L * W), np.repeat(key_BL, W, 1)[:, None], np.tile(a_HW, L), np.tile(b_HW, L))
        return
    key_B1LW, a_1H1W, b_1H1W = (key_BL if key_BL.ndim == 3 else key_BL[..., None])[:, None], a_HW[None, :, None], b_HW[None, :, None]
    spare = np.empty(min(CHUNK + W, word_BHLW.size), np.uint64)
    for b, h, line in pieces(B, H, L, W):
        word = word_BHLW[b, h, line]
        np.multiply(key_B1LW[b, :, line], a_1H1W[:, h], out=word)
        np.add(word, b_1H1W[:, h], out=word)
        upper = np.right_shift(word, 32, out=spare[:word.size].reshape(word.shape))
        np.bitwise_xor(word, upper, out=word)


def pieces(B: int, H: int, L: int, W: int) -> Iterator[tuple[slice, slice, slice]]:
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
