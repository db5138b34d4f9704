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
        predictions: of a few rows, some of them wrong.
        references: of the same rows.
        perfect: predictions without a fault; None: the references themselves.

    Raises:
        AssertionError: which says what the metric does not keep.
    """
    name = metric if isinstance(metric, str) else metric.name
    assert name in names(Metric), f"{name} is not registered: put @weft.register above it"
    checked = find_metric(name)
    assert isinstance(checked.greater_is_better, bool), f"{name}.greater_is_better: True or False"
    copies = deepcopy((predictions, references))
    scores = numbers_of(checked, predictions, references)
    assert is_same((predictions, references), copies), f"{name} changes what it is given"
    check_order(checked, predictions, references, scores)
    main = next(iter(scores))
    best = numbers_of(checked, references if perfect is None else perfect, references)[main]
    better = best > scores[main] if checked.greater_is_better else best < scores[main]
    assert better, f"{name} of perfect predictions is {best}, of faulty ones {scores[main]}"
    try:
        list(checked(predictions[:-1], references))
    except ValueError:
        return
    raise AssertionError(f"{name} takes {len(predictions) - 1} predictions of {len(references)}")


def is_same(before: Any, now: Any) -> bool:
    """Return whether two values are equal: arrays and tensors by their elements, NaN is equal to
    itself.
    """
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
    """The pairs whose value is a number; the first must be one."""
    with calling(metric.name):
        pairs = list(metric(predictions, references))
    assert pairs, f"{metric.name} yields nothing"
    assert len(dict(pairs)) == len(pairs), f"{metric.name} yields a name twice"
    scores = {key: value for key, value in pairs if not isinstance(value, str)}
    assert pairs[0][0] in scores, f"{metric.name}: the first pair is the metric, a number"
    for key, value in scores.items():
        assert isfinite(value), f"{metric.name}: {key} is {value}"
    return scores


def check_order(
    metric: Metric, predictions: Sequence[Any], references: Sequence[Any], scores: dict[str, float]
) -> None:
    """Rows in another order, in lists or tuples, give the same values; each of the first rows is
    once the first.
    """
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
