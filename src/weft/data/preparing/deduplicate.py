"""Deduplication keys of rows: the text itself, or bands of its MinHash signature."""

import re
from functools import lru_cache, partial
from hashlib import blake2b

import numpy as np

from ... import recipe as R
from ...support.extras import install_extra

SPACE = re.compile(r"\s+")
WORD = re.compile(r"\w+")
MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # odd, 2^64 over the golden ratio
TOGETHER = 1 << 12  # n-grams that are hashed at once: memory does not grow with the text


class ExactKeys:
    def __init__(self, value: R.ExactDeduplication) -> None:
        self.normalize = value.normalize

    def __call__(self, content: str | bytes) -> list[bytes]:
        if isinstance(content, bytes):
            return [content]
        text = SPACE.sub(" ", content.casefold()).strip() if self.normalize else content
        return [text.encode("utf-8", "surrogatepass")]


class MinHashKeys:
    """Two rows share a key where a band of their signatures is equal: with b bands of r rows, rows
    of similarity s do so with probability 1 - (1 - s^r)^b (Leskovec, Rajaraman and Ullman, Mining
    of Massive Datasets, section 3.4). datasketch chooses b and r."""

    def __init__(self, value: R.NearDeduplication) -> None:
        try:
            from datasketch import MinHash, MinHashLSH
        except ImportError:
            raise ValueError(
                f"NearDeduplication needs datasketch; {install_extra('data')}"
            ) from None
        self.value = value
        lsh = MinHashLSH(threshold=value.threshold, num_perm=value.permutations)
        self.bands = lsh.b
        self.rows = lsh.r
        empty = partial(MinHash, value.permutations, value.seed, hashfunc=int, scheme="affine32")
        self.signature = partial(empty, permutations=empty().permutations)  # drawn once

    def __call__(self, text: str) -> list[bytes]:
        signature = self.signature()
        grams = np.unique(ngram_hashes(text, self.value)).tolist()
        for start in range(0, len(grams), TOGETHER):
            signature.update_batch(grams[start : start + TOGETHER])
        values = np.asarray(signature.hashvalues[: self.bands * self.rows], "<u4")
        return [
            band.to_bytes(2, "little") + part.tobytes()
            for band, part in enumerate(values.reshape(self.bands, self.rows))
        ]


def ngram_hashes(text: str, value: R.NearDeduplication) -> np.ndarray:
    """Return 32 bits of a hash of every n-gram, in lower case; a text of fewer units is one. An
    n-gram is a polynomial of the hashes of its words, since hashing every n-gram alone takes most
    of the time."""
    lower = text.casefold()
    units = WORD.findall(lower) if value.unit == "word" else list(SPACE.sub("", lower))
    hashes = np.array([*map(hash_unit, units)] or [0], np.uint64)
    n = min(value.ngram, len(hashes))
    total = np.zeros(len(hashes) - n + 1, np.uint64)
    for i in range(n):
        total = total * MULTIPLIER + hashes[i : len(hashes) - n + 1 + i]
    return (total * MULTIPLIER >> np.uint64(32)).astype(np.uint32)


@lru_cache(1 << 16)  # words of one text are those of the next
def hash_unit(unit: str) -> int:
    digest = blake2b(unit.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little")
