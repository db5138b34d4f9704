"""A tag for every word, read at its first piece (BERT, arXiv:1810.04805, section 5.3)."""
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from .. import recipe as R
from .. import spec as S
from .base import IGNORE, Batch, Corruption, Objective, Reader, Row, Setting, cross_entropy, joined, labels_at, read_at
from .classify import Join, refuse_head, run

if TYPE_CHECKING:
    from ..data.store import Store


class Corrupt(Corruption):
    """begin, tokens, end; nothing is asked at marks and at a word's further pieces."""
    terms = ("tag",)

    def __init__(self, value: R.Tagging, setting: Setting) -> None:
        refuse_head(value, setting, S.Tags)
        if not isinstance(setting.meta.row, R.Tagged):
            raise ValueError(f"Tagging reads rows of Tagged, not of {type(setting.meta.row).__name__}")
        super().__init__(setting)
        self.join = Join(value, setting, style="gpt")          # one text: segments would all be the first
        self.fields, self.marks = {"tokens": ("tokens", self.pad), "labels": ("tokens", IGNORE)}, self.join.marks

    def read(self, store: "Store", length: int, tail: bool) -> Any:
        return self.join.table(store, length, "tokens")

    def __call__(self, samples: Reader, index: int, draw: np.random.Generator) -> Row:
        sample = samples[index]
        tags = sample["tags"][:samples.length - 2]
        return self.join(sample["tokens"], None, samples.length) | {"labels": joined([IGNORE], tags, [IGNORE])}


class Score(Objective):
    def __init__(self, value: R.Tagging, setting: Setting) -> None:
        super().__init__(setting, {"tag": 1.0})

    def answer(self, batch: Batch) -> Tensor:
        return read_at(self.model, run(self.model, batch), batch["labels_at"])

    def score(self, answer: Tensor, batch: Batch) -> dict[str, Tensor]:
        return {"tag": cross_entropy(answer, labels_at(batch))}
