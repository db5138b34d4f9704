"""The order of samples: a pure function of (seed, epoch, number of samples) with random access."""

from functools import lru_cache
from hashlib import sha512
from itertools import pairwise

import numpy as np

ODD_1 = np.uint64(0x9E3779B97F4A7C15)
ODD_2 = np.uint64(0xD6E8FEB86659FD93)


@lru_cache(maxsize=256)
def hash_words(*key: int | str) -> tuple[int, ...]:
    """Return eight 64-bit words from a key. SHA-512 makes neighbouring seeds and epochs
    independent."""
    digest = sha512(" ".join(map(str, key)).encode()).digest()
    return tuple(int.from_bytes(digest[i : i + 8], "little") for i in range(0, 64, 8))


def random_position(*key: int | str) -> float:
    """Return a number in [0, 1) from a key. Nothing is cached, since each row of a table has its
    own key."""
    digest = sha512(" ".join(map(str, ("position", *key))).encode()).digest()
    return (int.from_bytes(digest[:8], "little") >> 11) / 2**53


def hash_to_int(*key: int) -> int:
    """Return one number below 2 ** 63 from several."""
    return hash_words("mix", *key)[0] >> 1


def permute(index: np.ndarray | int, n: int, seed: int, *turn: int) -> np.ndarray:
    """Return the position of `index` in a shuffle of [0, n); `turn` is the epoch and other parts of
    the key.

    A Feistel network on the next power of two, repeated until the value is below n (Black and
    Rogaway 2002, "Ciphers with Arbitrary Finite Domains", section 3): a bijection for any n.
    Changing one bit of it breaks every resume; tests compare it with golden values."""
    permuted = np.array(index, np.uint64, ndmin=1)
    assert (permuted < n).all(), f"{index} is not below {n}"
    bits = max(4, (n - 1).bit_length())
    keys = np.array(hash_words("permute", seed, *turn), np.uint64)
    walking = np.arange(len(permuted))
    moved = permuted
    while len(walking):
        moved = feistel_network(moved, bits, keys)
        inside = moved < np.uint64(n)
        permuted[walking[inside]] = moved[inside]
        walking = walking[~inside]
        moved = moved[~inside]
    return permuted.astype(np.int64)


def feistel_network(x: np.ndarray, bits: int, keys: np.ndarray) -> np.ndarray:
    """A bijection of [0, 2 ** bits): each half in turn is combined with a hash of the other."""
    low = bits // 2
    left = x >> np.uint64(low)
    right = x & np.uint64((1 << low) - 1)
    for key_left, key_right in keys.reshape(-1, 2):
        left = left ^ hash_half(right, key_left, bits - low)
        right = right ^ hash_half(left, key_right, low)
    return (left << np.uint64(low)) | right


def hash_half(x: np.ndarray, key: np.uint64, bits: int) -> np.ndarray:
    x = (x ^ key) * ODD_1
    x ^= x >> np.uint64(32)
    x *= ODD_2
    return x >> np.uint64(64 - bits)


class Order:
    """The infinite stream of samples, epoch after epoch, each with its own shuffle. With `repeats`,
    that many epochs share a shuffle and interleave: a sample occurs that many times in a row, each
    in another epoch with different random draws."""

    def __init__(self, n: int, seed: int, repeats: int = 1) -> None:
        self.n = n
        self.seed = seed
        self.repeats = repeats
        self.start = 0
        self.ahead = (np.empty(0, np.int64), np.empty(0, np.int64))

    def at(self, position: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return epoch and index of the samples at positions `position`, `position` + 1, …;
        computes some more than `count` in advance."""
        if not self.start <= position <= position + count <= self.start + len(self.ahead[0]):
            self.start = position
            self.ahead = self.compute(position, max(count, min(self.n, 2048)))
        here = slice(position - self.start, position - self.start + count)
        return self.ahead[0][here], self.ahead[1][here]

    def compute(self, position: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        places, repeat = np.divmod(np.arange(position, position + count), self.repeats)
        passes, places = np.divmod(places, self.n)
        bounds = np.searchsorted(passes, np.arange(passes[0], passes[-1] + 2))
        parts = [
            permute(places[a:b], self.n, self.seed, int(passes[a])) for a, b in pairwise(bounds)
        ]
        return passes * self.repeats + repeat, np.concatenate(parts)


class SampleGenerators:
    """Random generators, one per sample. A generator is valid until the next call."""

    def __init__(self, seed: int) -> None:
        self.bits = np.random.Philox(key=np.array(hash_words("draw", seed)[:2], np.uint64))
        self.fresh = self.bits.state
        self.generator = np.random.Generator(self.bits)

    def generator_for(self, epoch: int, index: int) -> np.random.Generator:
        counter = self.fresh["state"]["counter"]
        # The lowest word counts the draws
        counter[1] = index
        counter[2] = epoch
        self.bits.state = self.fresh
        return self.generator


def sample_generator(seed: int, epoch: int, index: int) -> np.random.Generator:
    """Return the random generator of one sample in one epoch (Philox: Salmon et al. 2011, "Parallel
    Random Numbers: As Easy as 1, 2, 3", section 3.3)."""
    return SampleGenerators(seed).generator_for(epoch, index)
