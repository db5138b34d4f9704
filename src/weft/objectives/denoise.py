"""Rebuild a text from one whose spans are infilled and whose sentences are shuffled (BART, arXiv:1910.13461, section 2.2)."""

import numpy as np

from .. import recipe as R
from ..data.store import Store
from ..data.text import Samples, SentenceRuns, Windows
from ..data.tokenizer import Marks
from .base import Corruption, Decoded, Reader, Row, Setting, asks, beside, joined, special, start
from .draws import enough, places, spread


class Corrupt(Corruption):
    def __init__(self, value: R.Denoising, setting: Setting) -> None:
        asks(value, setting, encoder=True, decoder=True)
        if value.shuffle and not getattr(setting.meta.row, "sentences", False):
            raise ValueError("shuffle reads sentences; prepare the data with Documents(sentences=True), or Denoising(shuffle=False)")
        super().__init__(setting)
        self.begin, self.end, self.mask = special(value, setting, "begin", "end", "mask")
        self.value, self.start, self.fields = value, start(setting, self.end), self.both()
        self.marks = Marks([self.begin], [self.end], [self.end])

    def read(self, store: Store, length: int, tail: bool) -> Samples:
        size = beside(length, 2)
        return SentenceRuns(store, size) if self.value.shuffle else Windows(store, size, size, tail)

    def __call__(self, samples: Reader, index: int, draw: np.random.Generator) -> Row:
        sample = samples[index]
        text = np.asarray(sample["tokens"], np.int64)
        if text[-1] == self.end:
            text = text[:-1]
        labels = joined([self.begin], text, [self.end])
        noised = self.infill(shuffled(text, sample["sentences"], draw) if self.value.shuffle else text, draw)
        return {"tokens": joined([self.begin], noised[:samples.length - 2], [self.end]),
                "target": joined([self.start], labels[:-1]), "labels": labels}

    def infill(self, text: np.ndarray, draw: np.random.Generator) -> np.ndarray:
        """Each span becomes one mask; an empty one is a mask between two tokens."""
        budget = self.value.share * len(text)
        lengths = draw.poisson(self.value.mean, 1 + int((2 * budget + 32) / self.value.mean))
        lengths = lengths[:enough(draw, lengths, budget)]
        lengths = np.diff(lengths.cumsum().clip(max=len(text)), prepend=0)
        at = places(draw, lengths, len(text))
        seen = np.ones(len(text), bool)
        seen[spread(at, lengths)] = False
        before = np.cumsum(lengths) - lengths                  # tokens hidden before each span
        return np.insert(text[seen], at - before, self.mask)


def shuffled(text: np.ndarray, sentences: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    starts = np.union1d([0], sentences).astype(np.int64)
    starts = starts[starts < len(text)]
    lengths = np.diff(starts, append=len(text))
    order = draw.permutation(len(starts))
    mixed: np.ndarray = text[spread(starts[order], lengths[order])]
    return mixed


class Score(Decoded):
    def __init__(self, value: R.Denoising, setting: Setting) -> None:
        super().__init__(setting)
