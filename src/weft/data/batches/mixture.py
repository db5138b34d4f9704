"""The sample order of a mixture of sources: a pure function of the position, as cheap to compute as
that of one source.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import recipe as R
from ...support.order import Order, hash_to_int, permute
from ...support.storage import digest_plain
from ..shards.store import DataInfo, Store
from .samples import Sample, Samples

BLOCK = 1 << 16  # samples in which the rates hold exactly; no rate is below one sample in a block


def block_counts(shares: Sequence[float], block: int = BLOCK) -> np.ndarray:
    """Return how many samples of a block are of each source: the largest remainders are rounded up,
    and every source has one."""
    exact = np.asarray(shares, np.float64) / np.sum(shares) * (block - len(shares))
    counts: np.ndarray = np.floor(exact).astype(np.int64)
    rest = block - len(shares) - int(counts.sum())
    counts[np.argsort(counts - exact, kind="stable")[:rest]] += 1
    counts += 1
    return counts


class MixtureOrder(Order):
    """The endless stream of a mixture. A block is a shuffle of source ids, as many per source as
    its rate gives; the k-th id of a source is the k-th sample of that source's own order, so each
    epoch of a source has every sample once.
    """

    def __init__(self, sizes: Sequence[int], shares: Sequence[float], seed: int) -> None:
        super().__init__(1 << 62, seed)  # an epoch of the whole mixture never ends
        self.sources = [Order(size, hash_to_int(seed, i)) for i, size in enumerate(sizes)]
        self.first_index = np.cumsum([0, *sizes])
        self.counts = block_counts(shares)
        self.block = -1
        self.source_ids = np.empty(0, np.int64)

    def compute(self, position: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the epoch of each sample's source, and its index in the whole mixture."""
        number, first = divmod(position, BLOCK)
        here = min(count, BLOCK - first)
        epochs, indices = self.compute_within(number, first, here)
        if here == count:
            return epochs, indices
        rest = self.compute(position + here, count - here)
        return np.concatenate([epochs, rest[0]]), np.concatenate([indices, rest[1]])

    def compute_within(self, number: int, first: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        if self.block != number:
            source_ids = np.repeat(np.arange(len(self.counts)), self.counts)
            self.block = number
            self.source_ids = source_ids[permute(np.arange(BLOCK), BLOCK, self.seed, number)]
        before = self.source_ids[:first]
        here = self.source_ids[first : first + count]
        epochs = np.empty(count, np.int64)
        indices = np.empty(count, np.int64)
        for i, order in enumerate(self.sources):
            places = np.flatnonzero(here == i)
            if len(places):
                taken = number * int(self.counts[i]) + int(np.count_nonzero(before == i))
                epochs[places], index = order.compute(taken, len(places))
                indices[places] = self.first_index[i] + index
        return epochs, indices


class MixtureSamples:
    """The samples of several sources, numbered one source after another."""

    def __init__(self, parts: Sequence[Any], rates: R.MixingRates) -> None:
        self.parts = list(parts)
        self.sizes = [len(part) for part in parts]
        self.shares = rates.shares(self.sizes)
        self.starts = np.cumsum([0, *self.sizes])

    def __len__(self) -> int:
        return int(self.starts[-1])

    def __getitem__(self, i: int) -> Sample:
        samples, index = self.locate(i)
        sample: Sample = samples[index]
        return sample

    def locate(self, i: int) -> tuple[Any, int]:
        """Return the source's samples that contain sample i, and its index among them."""
        part = int(self.starts.searchsorted(i, "right")) - 1
        return self.parts[part], i - int(self.starts[part])

    def lengths(self, indices: np.ndarray) -> np.ndarray:
        numbers = self.starts.searchsorted(indices, "right") - 1
        lengths = np.empty(len(indices), np.int64)
        for number in np.unique(numbers).tolist():
            here = numbers == number
            lengths[here] = self.parts[number].lengths(indices[here] - self.starts[number])
        return lengths

    def order(self, seed: int) -> MixtureOrder:
        return MixtureOrder(self.sizes, self.shares, seed)


def locate_sample(samples: Samples, index: int) -> tuple[Samples, int]:
    """Return the samples of a row's source, so that tasks do not depend on mixtures."""
    return samples.locate(index) if isinstance(samples, MixtureSamples) else (samples, index)


class MixtureStore:
    """The prepared sources of a mixture, by name."""

    def __init__(self, parts: dict[str, Store], mixture: R.Mixture, meta: DataInfo) -> None:
        self.parts = parts
        self.mixture = mixture
        self.meta = meta
        self.fingerprint = digest_plain([[name, part.fingerprint] for name, part in parts.items()])

    def __len__(self) -> int:
        return sum(map(len, self.parts.values()))
