"""Right classes: accuracy, F1, Matthews' correlation (Matthews 1975; for many classes, Gorodkin 2004)."""
from collections import Counter
from collections.abc import Iterator, Sequence
from math import sqrt
from typing import Any

Scores = Iterator[tuple[str, float]]


def accuracy(said: Sequence[Any], right: Sequence[Any]) -> Scores:
    """Of all rows alike."""
    if len(said) != len(right) or not right:
        raise ValueError(f"{len(said)} answers to {len(right)} questions; give one each, and at least one")
    yield "accuracy", sum(s == r for s, r in zip(said, right, strict=True)) / len(right)


def f1(said: Sequence[Any], right: Sequence[Any], positive: Any) -> Scores:
    """Of one class: the harmonic mean of precision and recall."""
    yield "F1", harmonic(sum(s == positive == r for s, r in zip(said, right, strict=True)), said.count(positive), right.count(positive))


def macro_f1(said: Sequence[Any], right: Sequence[Any]) -> Scores:
    """The mean over the classes that were said or right."""
    hits, spoken, asked = Counter(r for s, r in zip(said, right, strict=True) if s == r), Counter(said), Counter(right)
    classes = spoken.keys() | asked.keys()
    yield "macro F1", sum(harmonic(hits[c], spoken[c], asked[c]) for c in classes) / len(classes)


def harmonic(hits: int, said: int, right: int) -> float:
    """F1 of so many hits among those said and those right: 2PR / (P + R)."""
    return 2 * hits / (said + right) if said + right else 0.0


def matthews(said: Sequence[Any], right: Sequence[Any]) -> Scores:
    """Correlation of two columns of classes; 0 where one of them never changes."""
    n, hits = len(right), sum(s == r for s, r in zip(said, right, strict=True))
    spoken, asked = Counter(said), Counter(right)
    together = sum(count * asked[c] for c, count in spoken.items())
    spread = sqrt((n * n - sum(c * c for c in spoken.values())) * (n * n - sum(c * c for c in asked.values())))
    yield "Matthews", (hits * n - together) / spread if spread else 0.0


def classes(said: Sequence[Any], right: Sequence[Any], labels: Sequence[Any]) -> Scores:
    """What is printed of a classifier. Of two classes, the second is the one to find."""
    yield from accuracy(said, right)
    yield from f1(said, right, labels[1]) if len(labels) == 2 else macro_f1(said, right)
    yield from matthews(said, right)
