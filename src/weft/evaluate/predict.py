"""Answers of a model: a plain one a sample, each sample once on any number of ranks. One mechanism for scores and for questions."""
import json
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from .. import recipe as R
from ..data.loader import Loader
from ..data.plan import InRows
from ..data.store import Meta, Store
from ..data.tokenizer import Tokenizer
from ..model.model import Model
from ..objectives import Batch, Corruption, Reader, build
from ..objectives.answer import best_span
from ..objectives.auxiliary import scores_of
from ..objectives.base import labels_at, room
from .perplexity import windows

LONGEST = 512                              # tokens of a row, where nothing says more or less
SPAN = 30                                  # tokens of an answer at most (BERT's own script)


class Asked(Protocol):
    """A model ready for use: `weft.ready` makes one."""
    @property
    def name(self) -> str: ...
    @property
    def model(self) -> Model: ...
    @property
    def text(self) -> Tokenizer: ...
    @property
    def labels(self) -> tuple[str, ...] | None: ...


class Ranks(Protocol):
    """Those who share the work: `train.distribute.World` is one."""
    rank: int
    size: int

    def sum(self, numbers: list[float]) -> list[float]: ...


class Alone:
    rank, size = 0, 1

    def sum(self, numbers: list[float]) -> list[float]:
        return numbers


class How(NamedTuple):
    """What changes no answer, but the draws of a corruption."""
    rows: int = 32                         # of a batch
    bf16: bool = False
    seed: int = 0
    ranks: Ranks = Alone()


Plain = Callable[[Any, Batch], list[Any]]  # from an answer and its batch to what JSON can hold, one a row


# Every sample once

class ByLength(Reader):
    """The same samples, the longest first, so that those of like length share a batch."""

    def __init__(self, inner: Reader) -> None:
        lengths = inner.lengths(np.arange(len(inner)))
        self.inner, self.samples, self.length, self.order = inner, inner.samples, inner.length, (-lengths).argsort(kind="stable")

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.inner[int(self.order[index])]

    def lengths(self, indices: np.ndarray) -> np.ndarray:
        return self.inner.lengths(self.order[indices])


def walk(corruption: Corruption, samples: Reader, answer: Callable[[Batch], Any], device: torch.device,
         how: How = How()) -> Iterator[tuple[list[int], Batch, Any]]:
    """The numbers of some samples of this rank, their batch and the model's answer."""
    loader = Loader(InRows(len(samples), how.seed, how.rows), samples, corruption, how.seed, how.ranks.rank, how.ranks.size)
    with torch.inference_mode(), torch.autocast(device.type, torch.bfloat16) if how.bf16 else nullcontext():
        for work in loader.once(how.rows):
            if work.share:
                (batch,) = ({name: tensor.to(device) for name, tensor in batch.items()} for batch in work.batches)
                yield [pick.index for (pick,) in work.step.rows], batch, answer(batch)


def answers(corruption: Corruption, samples: Reader, answer: Callable[[Batch], Any], plain: Plain, device: torch.device,
            how: How = How()) -> list[Any]:
    """A plain answer a sample, in the samples' order, the same on every rank."""
    sorted_ = ByLength(samples)
    own: list[tuple[int, Any]] = []
    for indices, batch, found in walk(corruption, sorted_, answer, device, how):
        own += zip((int(sorted_.order[i]) for i in indices), plain(found, batch), strict=True)
    every = sorted(gather(own, how.ranks), key=lambda pair: pair[0])
    assert [i for i, _ in every] == list(range(len(samples))), "a sample has no answer, or two"
    return [found for _, found in every]


def gather(own: list[tuple[int, Any]], ranks: Ranks) -> list[tuple[int, Any]]:
    """The answers of all ranks. Each writes its bytes into its own stretch of zeros: their sum holds all."""
    if ranks.size == 1:
        return own
    held = np.frombuffer(json.dumps(own).encode(), np.uint8)
    sizes = [int(n) for n in ranks.sum([float(len(held) * (r == ranks.rank)) for r in range(ranks.size)])]
    ends = np.cumsum(sizes)
    stretch = np.zeros(ends[-1])
    stretch[ends[ranks.rank] - len(held):ends[ranks.rank]] = held
    whole = np.array(ranks.sum(stretch.tolist())).astype(np.uint8)
    return [(i, found) for part in np.split(whole, ends[:-1]) for i, found in json.loads(part.tobytes())]


# What each objective's answer says plainly

def by_row(values_T: Tensor, batch: Batch) -> list[Any]:
    """What was answered at `labels_at`, a list a row."""
    row_T = (batch["labels_at"] // batch["labels"].shape[1]).cpu()
    return [part.tolist() for part in values_T.cpu().split(torch.bincount(row_T, minlength=len(batch["labels"])).tolist())]


def shares(answer: Any, batch: Batch) -> list[Any]:
    """The probability of each class or ending."""
    plain: list[Any] = scores_of(answer).double().softmax(-1).tolist()
    return plain


def number(answer: Any, batch: Batch) -> list[Any]:
    plain: list[Any] = scores_of(answer)[:, 0].double().tolist()
    return plain


def tags(answer: Tensor, batch: Batch) -> list[Any]:
    """The number and the probability of each word's tag."""
    share_T, tag_T = answer.double().softmax(-1).max(-1)
    return by_row(torch.stack((tag_T.double(), share_T), -1), batch)


def spans(answer: tuple[Tensor, Tensor], batch: Batch) -> list[Any]:
    """First and last token inside the context, their score, and that of no answer."""
    best = best_span(answer[0].float(), answer[1].float(), batch["context"], SPAN)
    first_B = batch["context"][:, 0]
    return torch.stack((best.start_B - first_B, best.end_B - first_B, best.score_B, best.none_B), -1).double().tolist()


def surprises(answer: Tensor, batch: Batch) -> list[Any]:
    """Minus the log-probability of each token that is asked, and whether it would have been said."""
    logits_TV, label_T = answer.float(), labels_at(batch)
    said_T = torch.nn.functional.cross_entropy(logits_TV, label_T, reduction="none")
    return by_row(torch.stack((said_T, (logits_TV.argmax(-1) == label_T).float()), -1), batch)


def hidden(answer: Any, batch: Batch) -> list[Any]:
    return surprises(answer.logits_TV, batch)


PLAIN: dict[type, Plain] = {
    R.Classification: shares, R.Regression: number, R.MultipleChoice: shares, R.Tagging: tags, R.Answering: spans,
    R.NextToken: surprises, R.MaskedTokens: hidden, R.Translation: surprises, R.TextToText: surprises, R.CorruptedSpans: surprises,
    R.Denoising: surprises}


def reach(model: Model) -> int:
    """All that a model can read at once."""
    return room(model.spec) or model.spec.context or LONGEST


def longest(model: Model) -> int:
    """The length of rows for a model that no recipe tells."""
    return min(reach(model), LONGEST)


def made(ready: Asked, objective: R.Objective, meta: Meta, how: How = How()) -> tuple[Corruption, Any, R.Objective]:
    """The corruption and the answers of an objective around a model that is trained."""
    if isinstance(objective, R.MaskedTokens) and objective.next_sentence:
        objective = replace(objective, next_sentence=False)    # its head is thrown away after training
    if isinstance(objective, R.Classification | R.Regression | R.MultipleChoice):
        objective = replace(objective, lm_weight=0.0)          # a loss beside the task's: no answer needs it
    if type(objective) not in PLAIN:
        raise ValueError(f"{ready.name} was trained by {type(objective).__name__}, which has no score of its own: its loss is in the run's "
                         "log; tune the model for a task, and evaluate that")
    corruption, score = build(objective, ready.model.spec, meta, seed=how.seed, model=ready.model)
    return corruption, score.eval().answer, objective


def predict(ready: Asked, objective: R.Objective, data: Store, *, length: int | None = None, stride: int | None = None,
            how: How = How()) -> list[Any]:
    """A plain answer a sample of `data`: see `PLAIN`. `stride`: windows of running text overlap, each token is asked once."""
    corruption, answer, objective = made(ready, objective, data.meta, how)
    length = length or longest(ready.model)
    if stride is not None and stride < length and isinstance(objective, R.NextToken) and not objective.documents:
        corruption, samples = Sliding(corruption), Reader(Slid(data, length, stride), length)
    else:
        samples = corruption.samples(data, length, tail=True)
    return answers(corruption, samples, answer, PLAIN[type(objective)], device_of(ready.model), how)


def device_of(model: Model) -> torch.device:
    return next(model.parameters()).device


# Overlapping windows of running text

class Slid:
    """Windows, and from which place on their tokens are new."""

    def __init__(self, store: Store, length: int, stride: int) -> None:
        self.store, self.places = store, list(windows(store.tokens, length, stride))

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, i: int) -> dict[str, Any]:
        start, stop, asked = self.places[i]
        return {"tokens": self.store.stream(start, stop), "documents": self.store.documents(start, stop) - start, "asked": asked - start}

    def lengths(self, indices: np.ndarray) -> np.ndarray:
        return np.array([self.places[i][1] - self.places[i][0] for i in indices], np.int64)


class Sliding(Corruption):
    """Only new tokens are asked."""

    def __init__(self, inner: Corruption) -> None:
        self.inner, self.fields, self.terms = inner, inner.fields, inner.terms

    def __call__(self, samples: Reader, index: int, draw: np.random.Generator) -> dict[str, np.ndarray]:
        row = self.inner(samples, index, draw)
        asked = np.arange(1, len(row["labels"]) + 1) >= samples[index]["asked"]
        return row | {"labels": np.where(asked, row["labels"], -100)}
