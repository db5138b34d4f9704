"""The metric interface and registry: predictions and references in, (name, value) pairs out."""

from collections.abc import Callable, Iterator
from typing import Any

from ..support.registry import Named, named, names, register_named

Scores = Iterator[tuple[str, float]]


class Metric(Named):
    """Base of metrics: called with one prediction and one reference per row, it yields pairs of a
    name and a value.

    The first pair is the metric itself; further pairs are details. Register your own metric with
    `@weft.register` above a subclass, or with `@weft.register(weft.Metric, "name")` above a
    function for which more is better.

    Attributes:
        name: the name in recipes.
        greater_is_better: whether a larger value is better (default: True).
    """

    name: str
    greater_is_better: bool = True

    def __call__(self, predictions: Any, references: Any) -> Scores:
        """Yield (name, value) pairs. The order of rows does not matter.

        Args:
            predictions: the model's predictions, one entry per row.
            references: the correct answers, one entry per row.
        """
        raise NotImplementedError


class FunctionMetric(Metric):
    """A metric that calls a function."""

    def __init__(
        self, name: str, compute: Callable[..., Scores], greater_is_better: bool = True
    ) -> None:
        self.name = name
        self.compute = compute
        self.greater_is_better = greater_is_better

    def __call__(self, predictions: Any, references: Any) -> Scores:
        return self.compute(predictions, references)


def find_metric(name: str) -> Metric:
    """Return the metric registered as `name`.

    Raises:
        ValueError: for an unknown name; the message suggests the nearest one.
    """
    thing = named(Metric, name)
    return thing if isinstance(thing, Metric) else FunctionMetric(name, thing)


def greater_is_better(name: str) -> bool:
    """Return whether a larger value of a validation measure is better: the loss, a metric, or a
    measure that the task computes itself (larger is better).
    """
    if name in names(Metric):
        return find_metric(name).greater_is_better
    return name != "loss"


for _name, _place in {
    "accuracy": "classification:accuracy",
    "f1": "classification:class_f1",
    "macro_f1": "classification:macro_f1",
    "matthews": "classification:matthews",
    "pearson": "correlation:pearson",
    "spearman": "correlation:spearman",
    "entity_f1": "entities:f1_of_entities",
    "exact_match": "squad:exact",
    "answer_f1": "squad:answer_f1",
    "ap": "detection:average_precision",
    "bleu": "translation:bleu",
    "chrf": "translation:chrf",
}.items():
    register_named(Metric, _name, f"weft.metrics.{_place}")
register_named(Metric, "perplexity", "weft.metrics.perplexity:PERPLEXITY")


def scores_of(valid: dict[str, float], metric: str | None) -> dict[str, float]:
    """Return the loss and the metric from the results of validation."""
    return {name: valid[name] for name in ("loss", metric) if name in valid}
