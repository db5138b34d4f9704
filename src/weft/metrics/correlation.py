"""Correlation metrics: Pearson, and Spearman on ranks."""

from collections.abc import Sequence

import numpy as np

from ..recipe.metrics import Scores


def pearson(predictions: Sequence[float], references: Sequence[float]) -> Scores:
    yield (
        "pearson",
        correlation(np.asarray(predictions, np.float64), np.asarray(references, np.float64)),
    )


def spearman(predictions: Sequence[float], references: Sequence[float]) -> Scores:
    yield (
        "spearman",
        correlation(
            ranks(np.asarray(predictions, np.float64)), ranks(np.asarray(references, np.float64))
        ),
    )


def correlation(x: np.ndarray, y: np.ndarray) -> float:
    """Return the correlation; NaN if one side is constant."""
    if len(x) != len(y) or len(x) < 2:
        raise ValueError(
            f"{len(x)} predictions and {len(y)} references have no correlation; give the same "
            "number, at least two, of each"
        )
    if not np.ptp(x) or not np.ptp(y):
        return float("nan")
    x = x - x.mean()
    y = y - y.mean()
    return float(x @ y) / float(np.sqrt((x @ x) * (y @ y)))


def ranks(x: np.ndarray) -> np.ndarray:
    """Return ranks from 0; equal numbers share the mean of their ranks."""
    _, place, count = np.unique(x, return_inverse=True, return_counts=True)
    shared: np.ndarray = (count.cumsum() - (count + 1) / 2)[place]
    return shared


def regression_metrics(predictions: Sequence[float], references: Sequence[float]) -> Scores:
    """Yield the metrics of a regression."""
    yield from pearson(predictions, references)
    yield from spearman(predictions, references)
