"""Classification metrics: accuracy, F1, Matthews correlation (Matthews 1975; for many classes,
Gorodkin 2004) and multiple choice.
"""

from collections import Counter
from collections.abc import Sequence
from math import sqrt
from typing import Any

from ..recipe.metrics import Scores
from .rows import check_pairs


def accuracy(predictions: Sequence[Any], references: Sequence[Any]) -> Scores:
    """Yield the fraction of correct predictions."""
    check_pairs(predictions, references)
    yield (
        "accuracy",
        sum(s == r for s, r in zip(predictions, references, strict=True)) / len(references),
    )


def f1(predictions: Sequence[Any], references: Sequence[Any], positive: Any) -> Scores:
    """F1 of one class: the harmonic mean of precision and recall."""
    yield (
        "f1",
        f1_score(
            sum(s == positive == r for s, r in zip(predictions, references, strict=True)),
            predictions.count(positive),
            references.count(positive),
        ),
    )


def macro_f1(predictions: Sequence[Any], references: Sequence[Any]) -> Scores:
    """Yield the mean F1 of the classes that occur in predictions or references."""
    hits = Counter(r for s, r in zip(predictions, references, strict=True) if s == r)
    predicted_counts = Counter(predictions)
    reference_counts = Counter(references)
    classes = predicted_counts.keys() | reference_counts.keys()
    yield (
        "macro_f1",
        sum(f1_score(hits[c], predicted_counts[c], reference_counts[c]) for c in classes)
        / len(classes),
    )


def class_f1(
    predictions: Sequence[Any], references: Sequence[Any], labels: Sequence[Any] | None = None
) -> Scores:
    """Yield the F1 of the second (positive) of two classes, or macro F1 of more classes."""
    check_pairs(predictions, references)
    labels = sorted({*predictions, *references}) if labels is None else labels
    ((_, value),) = (
        f1(predictions, references, labels[1])
        if len(labels) == 2
        else macro_f1(predictions, references)
    )
    yield "f1", value


def f1_score(hits: int, predictions: int, references: int) -> float:
    """Return F1 from the numbers of hits, predictions and references: 2PR / (P + R)."""
    return 2 * hits / (predictions + references) if predictions + references else 0.0


def matthews(predictions: Sequence[Any], references: Sequence[Any]) -> Scores:
    """Return the Matthews correlation; 0 if a column is constant."""
    n = len(references)
    hits = sum(s == r for s, r in zip(predictions, references, strict=True))
    predicted_counts = Counter(predictions)
    reference_counts = Counter(references)
    together = sum(count * reference_counts[c] for c, count in predicted_counts.items())
    spread = sqrt(
        (n * n - sum(c * c for c in predicted_counts.values()))
        * (n * n - sum(c * c for c in reference_counts.values()))
    )
    yield "matthews", (hits * n - together) / spread if spread else 0.0


def classification_metrics(
    predictions: Sequence[Any], references: Sequence[Any], labels: Sequence[Any]
) -> Scores:
    """Yield the metrics of a classifier. Of two classes, the second is the positive one."""
    yield from accuracy(predictions, references)
    yield from class_f1(predictions, references, labels)
    yield from matthews(predictions, references)


def multiple_choice_accuracy(
    scores: Sequence[Sequence[float]],
    references: Sequence[int],
    lengths: Sequence[Sequence[int]] | None = None,
) -> Scores:
    """Yield how often the correct ending has the highest score (the first of equal ones). With
    `lengths`, also with each score divided by the length of its ending (Brown et al. 2020,
    arXiv:2005.14165, section 2.4).
    """
    check_pairs(scores, references)
    yield from accuracy(
        [ending_scores.index(max(ending_scores)) for ending_scores in scores], references
    )
    if lengths is not None:
        shares = [
            [score / max(length, 1) for score, length in zip(*both, strict=True)]
            for both in zip(scores, lengths, strict=True)
        ]
        ((_, value),) = accuracy(
            [ending_scores.index(max(ending_scores)) for ending_scores in shares], references
        )
        yield "accuracy by length", value
