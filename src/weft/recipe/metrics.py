"""What a metric is: predictions and references in, (name, value) pairs out."""

from collections.abc import Callable, Iterator
from typing import Any

from ..support.registry import Named, named, names, register_named

Scores = Iterator[tuple[str, float]]


class Metric(Named):
    """Base of every metric: called with predictions and references, one of each per row, it yields
    pairs of a name and a value.

    The first pair is the metric itself; further pairs are details. Register one of your own with
    `@weft.register` above a subclass, or with `@weft.register(weft.Metric, "name")` above a
    function, where more is better.

    Attributes:
        name: the name in recipes.
        greater_is_better: whether a larger value is a better one.
    """

    name: str
    greater_is_better: bool = True

    def __call__(self, predictions: Any, references: Any) -> Scores:
        """Yield the pairs. The order of rows does not matter.

        Args:
            predictions: what a model says, one entry per row.
            references: what is right, one entry per row.
        """
        raise NotImplementedError


class FunctionMetric(Metric):
    """A function as a metric."""

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
        ValueError: if there is none; the message says which name is nearest.
    """
    thing = named(Metric, name)
    return thing if isinstance(thing, Metric) else FunctionMetric(name, thing)


def greater_is_better(name: str) -> bool:
    """Return the direction of a measure of validation: the loss, a metric, or what a task computes
    itself (more is better).
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
    """Return the loss and the metric among what validation measured."""
    return {name: valid[name] for name in ("loss", metric) if name in valid}
