"""A task's own measures while a run looks at its validation data: the answers are heard in passing, then scored."""
from collections.abc import Iterator
from math import isnan
from typing import Any

import numpy as np

from .. import recipe as R
from ..data.files import expand
from ..data.plan import Step
from ..data.rows import IGNORE
from ..data.squad import Question, questions
from ..data.store import Store
from ..objectives import Batch, Reader
from . import entities
from .accuracy import accuracy, classes
from .correlation import numbers
from .predict import PLAIN, ByLength, Ranks, gather
from .squad import Said, squad
from .text2text import exact_share

Scores = Iterator[tuple[str, float]]
NAMES = {"accuracy": "accuracy", "F1": "f1", "macro F1": "f1", "Matthews": "matthews", "Pearson": "pearson", "Spearman": "spearman",
         "exact match": "exact", "accuracy of words": "accuracy"}          # as a recipe calls them


class Measured:
    """Hears each answer, of whatever rank; `scores` when all are heard."""

    def __init__(self, recipe: R.Recipe, store: Store) -> None:
        self.recipe, self.store, self.plain = recipe, store, PLAIN[type(recipe.objective)]
        self.own: list[tuple[int, Any]] = []

    def arrange(self, samples: Reader) -> Reader:
        self.samples = ByLength(samples)
        return self.samples

    def hear(self, step: Step, answer: Any, batch: Batch) -> None:
        self.own += zip((int(self.samples.order[pick.index]) for (pick,) in step.rows), self.plain(answer, batch), strict=True)

    def scores(self, ranks: Ranks) -> dict[str, float]:
        """Where there is no correlation at all, it is 0."""
        said = [found for _, found in sorted(gather(self.own, ranks), key=lambda pair: pair[0])]
        assert len(said) == len(self.store), f"{len(said)} answers to {len(self.store)} samples"
        found = {NAMES[name]: number for name, number in self.judge(said) if name in NAMES}
        return {name: 0.0 if isnan(number) else number for name, number in found.items()}

    def judge(self, said: list[Any]) -> Scores:
        labels = self.store.meta.labels or ()
        if isinstance(self.recipe.objective, R.Tagging):
            return entities.tags(*tags_of(said, self.store, labels))
        if isinstance(self.recipe.objective, R.Answering):
            assert self.recipe.data.valid is not None
            return squad(*answers_of(said, self.store, self.recipe.data.valid))
        if isinstance(self.recipe.objective, R.TextToText):
            return iter([("exact match", exact_share(said))])
        right = [self.store.row(i)["label"] for i in range(len(self.store))]
        if isinstance(self.recipe.objective, R.Regression):
            return numbers(said, right)
        likely, known = [int(np.argmax(shares)) for shares in said], list(map(int, right))
        return classes(likely, known, range(len(labels))) if labels else accuracy(likely, known)


def tags_of(said: list[Any], store: Store, labels: tuple[str, ...]) -> tuple[list[list[str]], list[list[str]]]:
    """Tags by word, said and right; a word beyond the rows' length is outside."""
    tags = [store.row(i)["tags"] for i in range(len(store))]
    right = [own[own != IGNORE] for own in tags]
    full = [[labels[int(tag)] for tag, _ in own] + [entities.outside(labels)] * (len(true) - len(own))
            for own, true in zip(said, right, strict=True)]
    return full, [[labels[tag] for tag in own] for own in right]


def answers_of(said: list[Any], store: Store, source: R.Source) -> tuple[dict[str, Said], dict[str, list[str]]]:
    """Of a question's windows, the best span counts, and the least sure that there is none (BERT, arXiv:1810.04805, section 4.3)."""
    right, contexts = dict[str, list[str]](), dict[str, str]()
    for asked in (asked for path in expand(source.paths) for asked in questions(path, source.part)):
        if isinstance(asked, Question):
            contexts[asked.id] = asked.context
            right[asked.id] = [text for text, _ in asked.answers]
    found: dict[str, tuple[float, float, str]] = {}
    for i, (start, end, score, none) in enumerate(said):
        row = store.row(i)
        spans = row["offsets"].reshape(-1, 2)
        best, least, text = found.get(row["id"], (-np.inf, np.inf, ""))
        if score > best:
            text = contexts[row["id"]][int(spans[int(start), 0]):int(spans[int(end), 1])]
        found[row["id"]] = max(best, score), min(least, none), text
    return {name: Said(text, none - score) for name, (score, none, text) in found.items()}, {name: right[name] for name in found}
