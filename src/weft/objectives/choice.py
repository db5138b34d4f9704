"""Which of several endings is right: one score each, softmax over them (BERT, arXiv:1810.04805, section 4.4; GPT, Radford et al. 2018,
section 3.3)."""
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from .. import recipe as R
from .. import spec as S
from . import auxiliary
from .base import Batch, Corruption, Objective, Reader, Row, Setting, cross_entropy
from .classify import Join, refuse_head, run

if TYPE_CHECKING:
    from ..data.store import Store


class Corrupt(Corruption):
    """Each ending behind the context is a sequence, in a stream of its own."""

    def __init__(self, value: R.MultipleChoice, setting: Setting) -> None:
        refuse_head(value, setting, S.Classes, outputs=1)
        if not isinstance(setting.meta.row, R.Choices):
            raise ValueError(f"MultipleChoice reads rows of Choices, not of {type(setting.meta.row).__name__}")
        if len(setting.meta.row.endings) < 2:
            raise ValueError(f"MultipleChoice chooses between columns; give Choices(endings=…) two or more, not {setting.meta.row.endings}")
        auxiliary.refuse(value, setting)
        super().__init__(setting)
        self.terms = auxiliary.terms(value, "choice")
        self.join, self.endings = Join(value, setting, value.input), len(setting.meta.row.endings)
        self.fields, self.marks = {}, self.join.marks
        for i in range(self.endings):
            self.fields |= self.join.fields(self.pad, f"ending{i}", tokens=f"tokens{i}", segments=f"segments{i}")

    def read(self, store: "Store", length: int, tail: bool) -> Any:
        return self.join.table(store, length, "context", "endings")

    def __call__(self, samples: Reader, index: int, draw: np.random.Generator) -> Row:
        sample = samples[index]
        row = {"labels": np.asarray(sample["label"])}
        for i, ending in enumerate(sample["endings"]):
            row |= {f"{name}{i}": part for name, part in self.join(sample["context"], ending, samples.length).items()}
        return row

    def counts(self, batch: Any) -> dict[str, int]:
        counts = super().counts(batch)
        if auxiliary.TERM in self.terms:
            counts[auxiliary.TERM] = sum(auxiliary.count(batch[f"tokens{i}"], batch.get(f"ending{i}_keep")) for i in range(self.endings))
        return counts


class Score(Objective):
    def __init__(self, value: R.MultipleChoice, setting: Setting) -> None:
        super().__init__(setting, auxiliary.weights(value, "choice"))
        self.value = value
        assert isinstance(setting.meta.row, R.Choices)
        self.endings = len(setting.meta.row.endings)

    def answer(self, batch: Batch) -> Tensor | auxiliary.Joint:
        given = self.beside(batch)
        sequence = run(self.model, given)
        logits_T1 = self.model.read(sequence)
        assert isinstance(logits_T1, Tensor)
        return auxiliary.with_next(logits_T1.view(-1, self.endings), self.model, sequence, given["tokens"], self.value)

    def beside(self, batch: Batch) -> Batch:
        """All endings as rows of one batch, those of a sample side by side: (B * endings, L)."""
        streams = range(self.endings)
        length = max(batch[f"tokens{i}"].shape[1] for i in streams)

        def rows(each: list[Tensor]) -> Tensor:
            return torch.stack([F.pad(x_BL, (0, length - x_BL.shape[1])) for x_BL in each], 1).flatten(0, 1)
        keeps = [batch.get(f"ending{i}_keep", torch.ones_like(batch[f"tokens{i}"], dtype=torch.bool)) for i in streams]
        beside = {"tokens": rows([batch[f"tokens{i}"] for i in streams]), "tokens_keep": rows(keeps)}
        return beside | ({"segments": rows([batch[f"segments{i}"] for i in streams])} if "segments0" in batch else {})

    def score(self, answer: Tensor | auxiliary.Joint, batch: Batch) -> dict[str, Tensor]:
        return {"choice": cross_entropy(auxiliary.scores_of(answer), batch["labels"])} | auxiliary.also(answer)
