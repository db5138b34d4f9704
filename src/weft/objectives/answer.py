"""Where an answer starts and ends in a text (BERT, arXiv:1810.04805, sections 4.2 and 4.3)."""
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from .. import recipe as R
from .. import spec as S
from .base import Batch, Corruption, Objective, Reader, Row, Setting, cross_entropy
from .classify import Join, refuse_head, run

if TYPE_CHECKING:
    from ..data.store import Store


class Corrupt(Corruption):
    """begin question end context end; without an answer here, both places are the first token's (section 4.3)."""
    terms = ("span",)

    def __init__(self, value: R.Answering, setting: Setting) -> None:
        refuse_head(value, setting, S.Spans, outputs=2)
        if not isinstance(setting.meta.row, R.Questions):
            raise ValueError(f"Answering reads rows of Questions, not of {type(setting.meta.row).__name__}")
        super().__init__(setting)
        self.join, self.window = Join(value, setting), setting.meta.row.length
        self.fields, self.marks = self.join.fields(self.pad), self.join.marks

    def read(self, store: "Store", length: int, tail: bool) -> Any:
        if length < self.window:           # a cut would lose answers
            raise ValueError(f"length = {length}: the data's windows have {self.window} tokens; "
                             f"prepare them with Questions(length={length})")
        return self.join.table(store, length, "question", "context")

    def __call__(self, samples: Reader, index: int, draw: np.random.Generator) -> Row:
        sample = samples[index]
        first = self.join.second(sample["question"])             # the context's place in the row
        places = {f"labels_{side}": np.asarray(0 if sample[side] < 0 else sample[side] + first) for side in ("start", "end")}
        row = self.join(sample["question"], sample["context"], samples.length)
        return row | places | {"context": np.array([first, first + len(sample["context"])])}

    def units(self, batch: Any) -> dict[str, int]:
        return {"span": len(batch["labels_start_at"])}


class Score(Objective):
    def __init__(self, value: R.Answering, setting: Setting) -> None:
        super().__init__(setting, {"span": 1.0})

    def answer(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """How well an answer starts, and ends, at each place; never at padding."""
        scores = self.model.read(run(self.model, batch))
        assert isinstance(scores, Tensor)
        if (keep_BL := batch.get("tokens_keep")) is not None:
            scores = scores.masked_fill((keep_BL == 0)[..., None], torch.finfo(scores.dtype).min)
        start_BL, end_BL = scores.unbind(-1)
        return start_BL, end_BL

    def score(self, answer: tuple[Tensor, Tensor], batch: Batch) -> dict[str, Tensor]:
        start_BL, end_BL = answer
        return {"span": (cross_entropy(start_BL, batch["labels_start"]) + cross_entropy(end_BL, batch["labels_end"])) / 2}


class Span(NamedTuple):
    start_B: Tensor
    end_B: Tensor                          # inclusive
    score_B: Tensor
    none_B: Tensor                         # the score of no answer: start and end at the first token


def best_span(start_BL: Tensor, end_BL: Tensor, context: Tensor, longest: int) -> Span:
    """The best start + end with start ≤ end, at most `longest` tokens, inside the context: (B, 2), its first place and that behind its
    last (section 4.2)."""
    L = start_BL.shape[1]
    place_L = torch.arange(L, device=start_BL.device)
    outside_BL = (place_L < context[:, :1]) | (place_L >= context[:, 1:])
    begins_BL, ends_BL = (x_BL.masked_fill(outside_BL, float("-inf")) for x_BL in (start_BL, end_BL))
    longest = min(longest, L)
    ahead_BLS = F.pad(ends_BL, (0, longest - 1), value=float("-inf")).unfold(1, longest, 1)
    score_B, at_B = (begins_BL[..., None] + ahead_BLS).flatten(1).max(1)
    start_B = at_B // longest
    return Span(start_B, start_B + at_B % longest, score_B, start_BL[:, 0] + end_BL[:, 0])
