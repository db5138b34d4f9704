"""Guess hidden tokens (BERT, arXiv:1810.04805, section 3.1; spans: SpanBERT, arXiv:1907.10529, section 3.1)."""
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from .. import recipe as R
from .. import spec as S
from ..count import out_width
from ..data.store import Store
from ..data.text import Samples, SentenceRuns
from ..data.tokenizer import Marks
from .base import IGNORE, Batch, Corruption, Objective, Reader, Row, Setting, asks, beside, cross_entropy, labels_at, read_at, special
from .draws import enough, places, spread
from .formats import PAIRS, Format

LONGEST = 10
LENGTHS = 0.2 * 0.8 ** np.arange(LONGEST)  # SpanBERT's geometric lengths, cut at 10: 3.8 words on average
LENGTHS = LENGTHS.cumsum() / LENGTHS.sum()


class Corrupt(Corruption):
    def __init__(self, value: R.MaskedTokens, setting: Setting, head: type = S.Vocabulary) -> None:
        asks(value, setting, encoder=True, head=head)
        if value.masked + value.random > 1:
            raise ValueError(f"masked = {value.masked} and random = {value.random} of the chosen tokens are more than all")
        if value.masked + value.random == 0:
            raise ValueError("masked = 0 and random = 0 leave every chosen token as it is; give one of them more")
        if value.next_sentence and value.input not in PAIRS:
            raise ValueError(f"next_sentence needs input = {' or '.join(map(repr, PAIRS))}, not {value.input!r}")
        if not getattr(setting.meta.row, "sentences", False):
            raise ValueError(f"input = {value.input!r} reads sentences; prepare the data with Documents(sentences=True)")
        super().__init__(setting)
        meta = setting.meta
        begin, end, *mask = special(value, setting, "begin", "end", *(["mask"] if value.masked else []))
        self.mask = mask[0] if mask else self.pad              # without a share, nothing becomes it
        self.format, self.value, self.fixed = Format(value.input, begin, end, value.next_sentence), value, value.fixed
        self.marks = Marks([begin], [end], [end])
        self.choosable = np.ones(meta.vocabulary or 0, bool)
        self.choosable[[*meta.special.values(), *meta.sentinels]] = False
        self.ordinary = np.flatnonzero(self.choosable)
        self.continues = np.zeros_like(self.choosable) if meta.continues is None else meta.continues
        if value.choose != "tokens" and meta.continues is None:
            raise ValueError(f"choose = {value.choose!r} needs whole words, which this tokenizer does not tell; choose \"tokens\"")
        self.segments = value.input in PAIRS and (getattr(setting.spec.source, "segments", None) or 1) > 1
        self.fields = {"tokens": ("tokens", self.pad), "labels": ("tokens", IGNORE)}
        self.fields |= {"tokens_keep": ("tokens", 0)} if value.input == "doc-sentences" else {}
        self.fields |= {"segments": ("tokens", 0)} if self.segments else {}
        self.fields |= {"labels_next": ("tokens", IGNORE)} if value.next_sentence else {}
        self.terms = ("token", "next") if value.next_sentence else ("token",)

    def read(self, store: Store, length: int, tail: bool) -> Samples:
        found = SentenceRuns(store, beside(length, self.format.marks), follow=self.value.input in PAIRS)
        if self.value.next_sentence and len(found) < 2:
            raise ValueError(f"next_sentence draws from other rows, and {store.tokens} tokens are one row of {length}; give more text")
        return found

    def __call__(self, samples: Reader, index: int, draw: np.random.Generator) -> Row:
        row = self.format(samples, index, draw)
        if not self.segments:
            row.pop("segments", None)
        tokens = row["tokens"]
        at, chance = self.choose(tokens, draw)
        row["labels"] = np.full(len(tokens), IGNORE)
        row["labels"][at] = tokens[at]
        fresh = self.ordinary[draw.integers(len(self.ordinary), size=len(at))]
        tokens[at] = np.where(chance < self.value.masked, self.mask,
                              np.where(chance < self.value.masked + self.value.random, fresh, tokens[at]))
        return row

    def choose(self, tokens: np.ndarray, draw: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Chosen places, `share` of the ordinary ones on average and at least one, and a number in [0, 1) that says what each becomes."""
        at = np.flatnonzero(self.choosable[tokens])
        budget, how = self.value.share * len(at), self.value.choose
        if not len(at) or how == "tokens":
            count = enough(draw, np.ones(len(at), np.int64), budget)
            at = draw.permutation(at)[:max(count, 1)]
            return at, draw.random(len(at))
        first = ~self.continues[tokens[at]]
        first[0] = True
        first[1:] |= np.diff(at) > 1
        word = np.flatnonzero(first)                           # each word's first place in `at`
        size = np.diff(word, append=len(at))
        if how == "words":
            order = draw.permutation(len(word))
            order = order[:max(enough(draw, size[order], budget), 1)]
            at = at[spread(word[order], size[order])]
            return at, draw.random(len(at))
        lengths = np.searchsorted(LENGTHS, draw.random(len(word)), side="right") + 1
        lengths = lengths[:max(enough(draw, lengths, self.value.share * len(word)), 1)]
        lengths = np.diff(lengths.cumsum().clip(max=len(word)), prepend=0)
        start, edge = places(draw, lengths, len(word)), np.append(word, len(at))
        size = edge[start + lengths] - edge[start]
        return at[spread(edge[start], size)], np.repeat(draw.random(len(start)), size)     # a span becomes one thing

    def units(self, batch: Any) -> dict[str, int]:
        return {"token": len(batch["labels_at"])} | ({"next": len(batch["labels_next_at"])} if "next" in self.terms else {})


class Next(nn.Module):
    """BERT's pooler and its two classes, thrown away after training."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.dense, self.classes = nn.Linear(width, width), nn.Linear(width, 2)

    def forward(self, x_TD: Tensor) -> Tensor:
        logits_TV: Tensor = self.classes(torch.tanh(self.dense(x_TD)))
        return logits_TV


class Answer(NamedTuple):
    logits_TV: Tensor
    next_TV: Tensor | None


class Score(Objective):
    def __init__(self, value: R.MaskedTokens, setting: Setting) -> None:
        super().__init__(setting, {"token": 1.0} | ({"next": 1.0} if value.next_sentence else {}))
        self.next = Next(out_width(setting.spec)) if value.next_sentence else None
        self.begin(setting)

    def answer(self, batch: Batch) -> Answer:
        sequence = self.model.encode(self.model.embed(batch["tokens"], keep=batch.get("tokens_keep"), segments=batch.get("segments")))
        first = self.next(sequence.x_BLD.flatten(0, 1)[batch["labels_next_at"]]) if self.next else None
        return Answer(read_at(self.model, sequence, batch["labels_at"]), first)

    def score(self, answer: Answer, batch: Batch) -> dict[str, Tensor]:
        terms = {"token": cross_entropy(answer.logits_TV, labels_at(batch))}
        return terms if answer.next_TV is None else {**terms, "next": cross_entropy(answer.next_TV, labels_at(batch, "labels_next"))}
