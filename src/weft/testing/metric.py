"""Conformance of a metric: `check_metric` raises an AssertionError that names the problem."""

import random
from collections.abc import Sequence
from copy import deepcopy
from math import isclose, isfinite
from typing import Any

from ..recipe.metrics import Metric, find_metric
from ..support.registry import names
from .value import calling

SHUFFLES = 5


def check_metric(
    metric: str | Metric,
    predictions: Sequence[Any],
    references: Sequence[Any],
    perfect: Sequence[Any] | None = None,
) -> None:
    """Check that a registered metric is finite, independent of the order of rows, and best for
    perfect predictions.

    Args:
        metric: the metric, or its name.
        predictions: predictions of a few rows, some of them wrong.
        references: references of the same rows.
        perfect: predictions without errors (default: the references).

    Raises:
        AssertionError: with the violated condition.
    """
    name = metric if isinstance(metric, str) else metric.name
    assert name in names(Metric), f"{name} is not registered: put @weft.register above it"
    checked = find_metric(name)
    assert isinstance(checked.greater_is_better, bool), f"{name}.greater_is_better: True or False"
    copies = deepcopy((predictions, references))
    scores = numbers_of(checked, predictions, references)
    assert is_same((predictions, references), copies), f"{name} modifies its inputs"
    check_order(checked, predictions, references, scores)
    main = next(iter(scores))
    best = numbers_of(checked, references if perfect is None else perfect, references)[main]
    better = best > scores[main] if checked.greater_is_better else best < scores[main]
    assert better, f"{name} is {best} for perfect predictions and {scores[main]} for wrong ones"
    try:
        list(checked(predictions[:-1], references))
    except ValueError:
        return
    raise AssertionError(
        f"{name} accepts {len(predictions) - 1} predictions for {len(references)} references; "
        f"raise ValueError"
    )


def is_same(before: Any, now: Any) -> bool:
    """Return whether two values are equal, elementwise for arrays; NaN equals NaN."""
    if type(before) is not type(now):
        return False
    if isinstance(before, dict):
        return before.keys() == now.keys() and all(is_same(before[k], now[k]) for k in before)
    if isinstance(before, list | tuple):
        return len(before) == len(now) and all(map(is_same, before, now))
    if hasattr(before, "shape"):
        return before.shape == now.shape and bool(elements_equal(before, now).all())
    return before is now or bool(before == now)


def elements_equal(before: Any, now: Any) -> Any:
    """Return which elements of two arrays are equal, or both NaN."""
    return (before == now) | ((before != before) & (now != now))


def numbers_of(metric: Metric, predictions: Sequence[Any], references: Sequence[Any]) -> Any:
    """Return the pairs with a numeric value; the first pair must have one."""
    with calling(metric.name):
        pairs = list(metric(predictions, references))
    assert pairs, f"{metric.name} yields nothing"
    assert len(dict(pairs)) == len(pairs), f"{metric.name} yields a name twice"
    scores = {key: value for key, value in pairs if not isinstance(value, str)}
    assert pairs[0][0] in scores, f"{metric.name}: the first pair must be the metric, with a number"
    for key, value in scores.items():
        assert isfinite(value), f"{metric.name}: {key} is {value}"
    return scores


def check_order(
    metric: Metric, predictions: Sequence[Any], references: Sequence[Any], scores: dict[str, float]
) -> None:
    """Check that rows in another order, as lists or tuples, give the same values."""
    rows = list(range(len(references)))
    orders = [rows[i:] + rows[:i] for i in rows[: 2 * SHUFFLES]]
    orders += [random.Random(seed).sample(rows, len(rows)) for seed in range(SHUFFLES)]
    for number, order in enumerate(orders):
        kind = (list, tuple)[number % 2]
        numbers = numbers_of(
            metric, kind(predictions[i] for i in order), kind(references[i] for i in order)
        )
        same = numbers.keys() == scores.keys() and all(
            isclose(numbers[key], scores[key], rel_tol=1e-9, abs_tol=1e-12) for key in scores
        )
        assert same, f"{metric.name} depends on the order of rows: {scores} or {numbers}"
