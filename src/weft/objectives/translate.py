"""Decode the target of a source, labels smoothed (Vaswani et al. 2017, arXiv:1706.03762, sections 3.4 and 5.4)."""

import numpy as np
from torch import Tensor

from .. import recipe as R
from ..data.merges import Merges, Recut
from ..data.store import Store
from ..data.table import Table
from ..data.text import Samples
from ..data.tokenizer import Marks
from .base import Batch, Corruption, Decoded, Reader, Row, Setting, asks, cross_entropy, joined, labels_at, special, start


class Corrupt(Corruption):
    def __init__(self, value: R.Translation, setting: Setting) -> None:
        asks(value, setting, encoder=True, decoder=True)
        if not isinstance(setting.meta.row, R.Pairs):
            raise ValueError(f"Translation reads Pairs of a source and a target; the data holds {type(setting.meta.row).__name__}")
        super().__init__(setting)
        begin, self.end = special(value, setting, "begin", "end")
        self.start, self.fields, self.dropout = start(setting, begin), self.both(), value.dropout
        self.marks = Marks([], [self.end], [self.end])

    def read(self, store: Store, length: int, tail: bool) -> Samples:
        made = (Recut if self.dropout and not tail else Table)(store, ("source", "target"), apart=True, extra=1)
        if isinstance(made, Recut):
            made.merges = Merges(store.folder.tokenizer(), self.dropout)
        return made

    def __call__(self, samples: Reader, index: int, draw: np.random.Generator) -> Row:
        sample, room, table = samples[index], samples.length - 1, samples.samples
        source, target = (table.fresh(sample, side, draw)[:room] if isinstance(table, Recut) else sample[side][:room]
                          for side in ("source", "target"))
        return {"tokens": joined(source, [self.end]), "target": joined([self.start], target), "labels": joined(target, [self.end])}


class Score(Decoded):
    def __init__(self, value: R.Translation | R.TextToText, setting: Setting) -> None:
        super().__init__(setting)
        self.smoothing = value.smoothing

    def score(self, answer: Tensor, batch: Batch) -> dict[str, Tensor]:
        return {"token": cross_entropy(answer, labels_at(batch), self.smoothing)}
