"""Keys of rows, by which duplicates are found: the text itself, or bands of its MinHash signature."""

import re
from functools import partial
from hashlib import blake2b

import numpy as np

from .. import recipe as R

SPACE = re.compile(r"\s+")
WORD = re.compile(r"\w+")
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
    """Two rows share a key where a band of their signatures is equal: with b bands of r rows, rows of similarity s do so with probability
    1 - (1 - s^r)^b (Leskovec, Rajaraman and Ullman, Mining of Massive Datasets, section 3.4). datasketch chooses b and r."""

    def __init__(self, value: R.NearDeduplication) -> None:
        try:
            from datasketch import MinHash, MinHashLSH
        except ImportError:
            raise ValueError(
                "NearDeduplication needs datasketch; pip install 'weft[data]'"
            ) from None
        self.value = value
        lsh = MinHashLSH(threshold=value.threshold, num_perm=value.permutations)
        self.bands, self.rows = lsh.b, lsh.r
        empty = partial(
            MinHash, value.permutations, value.seed, hashfunc=hash_ngram, scheme="affine32"
        )
        self.signature = partial(empty, permutations=empty().permutations)  # drawn once

    def __call__(self, text: str) -> list[bytes]:
        signature, grams = self.signature(), ngrams(text, self.value)
        for start in range(0, len(grams), TOGETHER):
            signature.update_batch(grams[start : start + TOGETHER])
        values = np.asarray(signature.hashvalues[: self.bands * self.rows], "<u4")
        return [
            band.to_bytes(2, "little") + part.tobytes()
            for band, part in enumerate(values.reshape(self.bands, self.rows))
        ]


def hash_ngram(ngram: bytes) -> int:
    """Return 32 bits of a hash; datasketch's default is SHA-1."""
    return int.from_bytes(blake2b(ngram, digest_size=4).digest(), "little")


def ngrams(text: str, value: R.NearDeduplication) -> list[bytes]:
    """Return the n-grams in lower case, each once; a text of fewer units is one."""
    lower = text.casefold()
    units = WORD.findall(lower) if value.unit == "word" else SPACE.sub("", lower)
    gap = " " if value.unit == "word" else ""
    count = max(1, len(units) - value.ngram + 1)
    grams = {gap.join(units[i : i + value.ngram]) for i in range(count)}
    return [gram.encode("utf-8", "surrogatepass") for gram in grams]
