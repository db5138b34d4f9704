"""Predict each next token (Radford et al. 2018, "Improving Language Understanding by Generative Pre-Training", section 3.1)."""

import numpy as np
from torch import Tensor

from .. import recipe as R
from ..data.store import Store
from ..data.table import Table
from ..data.text import Samples, Windows
from .base import IGNORE, Batch, Corruption, Objective, Reader, Row, Setting, asks, read_at


class Corrupt(Corruption):
    """Inputs are all tokens of a window but the last, labels all but the first: the one shift there is."""

    def __init__(self, value: R.NextToken, setting: Setting) -> None:
        asks(value, setting, decoder=True)
        super().__init__(setting)
        self.apart, self.documents = value.apart and not value.documents, value.documents
        self.fields = {"tokens": ("tokens", self.pad), "labels": ("tokens", IGNORE)}
        if self.apart:
            self.fields["tokens_keep"] = ("tokens", 0)

    def read(self, store: Store, length: int, tail: bool) -> Samples:
        return Table(store, ("tokens",), extra=-1) if self.documents else Windows(store, length + 1, length, tail)

    def __call__(self, samples: Reader, index: int, draw: np.random.Generator) -> Row:
        sample = samples[index]
        tokens = np.asarray(sample["tokens"][:samples.length + 1], np.int64)
        inputs, labels = tokens[:-1], tokens[1:]
        if not self.apart:
            return {"tokens": inputs, "labels": labels}
        starts = np.zeros(len(tokens), np.int64)
        starts[sample["documents"]] = 1
        starts[0] = 1
        document = starts.cumsum()
        return {"tokens": inputs, "labels": np.where(starts[1:], IGNORE, labels), "tokens_keep": document[:-1]}


class Score(Objective):
    def __init__(self, value: R.NextToken, setting: Setting) -> None:
        super().__init__(setting)

    def answer(self, batch: Batch) -> Tensor:
        sequence = self.model.embed(batch["tokens"], keep=batch.get("tokens_keep"))
        return read_at(self.model, self.model.decode(sequence), batch["labels_at"])
