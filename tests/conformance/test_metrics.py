"""Every metric passes the public conformance check."""

from collections.abc import Iterator
from math import inf, nan
from typing import Any

import numpy as np
import pytest
from torch import nn, tensor

from weft.recipe import BestCheckpoint
from weft.recipe.metrics import Metric, greater_is_better
from weft.support.registry import NAMED, named, names, register
from weft.testing import check_metric
from weft.training.averages import BestWeights

CLASSES = ("abcabca", "abcaabb")
NUMBERS = ([0.1, 0.5, 0.2, 0.9], [0.0, 0.4, 0.6, 1.0])
TAGS = ([["B-PER", "I-PER", "O"], ["O", "B-ORG"]], [["B-PER", "O", "O"], ["O", "B-ORG"]])
ANSWERS = (["a cat", "the dog", ""], [["cat"], ["a black dog", "hound"], []])
SENTENCES = (
    ["the cat sat on a mat today .", "it rained all the day long ."],
    ["the cat sat on the mat today .", "it rained all day long ."],
)
BOXES = (
    [[(0, 0.9, 1.0, 1.0, 8.0, 8.0), (1, 0.4, 3.0, 3.0, 9.0, 9.0)], [(1, 0.8, 0.0, 0.0, 5.0, 5.0)]],
    [[(0, 1.0, 2.0, 8.0, 8.0)], [(1, 0.0, 0.0, 5.0, 5.0), (0, 9.0, 9.0, 4.0, 4.0)]],
    [[(0, 0.5, 1.0, 2.0, 8.0, 8.0)], [(1, 0.9, 0.0, 0.0, 5.0, 5.0), (0, 0.4, 9.0, 9.0, 4.0, 4.0)]],
)
CASES: dict[str, tuple[Any, ...]] = {
    "ap": BOXES,
    "accuracy": CLASSES,
    "f1": ([0, 1, 1, 0, 1], [0, 1, 0, 0, 1]),
    "macro_f1": CLASSES,
    "matthews": CLASSES,
    "pearson": NUMBERS,
    "spearman": NUMBERS,
    "entity_f1": TAGS,
    "exact_match": (*ANSWERS, ["cat", "hound", ""]),
    "answer_f1": (*ANSWERS, ["cat", "hound", ""]),
    "bleu": SENTENCES,
    "chrf": SENTENCES,
    "perplexity": ([-0.5, -1.0, -2.0], ["a", "b", "c"], [0.0, 0.0, 0.0]),
}


@pytest.mark.parametrize("name", names(Metric))
def test_a_metric_of_ours_keeps_the_contract(name: str) -> None:
    if name in ("bleu", "chrf"):
        pytest.importorskip("sacrebleu")
    if name == "ap":
        pytest.importorskip("faster_coco_eval")
    check_metric(name, *CASES[name])


def test_a_metric_knows_its_direction() -> None:
    assert greater_is_better("accuracy")
    assert not greater_is_better("perplexity")
    assert not greater_is_better("loss")
    with pytest.raises(ValueError, match="did you mean 'accuracy'"):
        named(Metric, "acuracy")


def test_the_best_weights_follow_the_direction_of_their_metric() -> None:
    lowest, highest = (
        BestWeights(BestCheckpoint(metric=name), nn.Linear(1, 1))
        for name in ("perplexity", "accuracy")
    )
    for step, value in enumerate((2.0, 3.0, 1.0), 1):
        lowest.update_best(step, {"perplexity": value})
        highest.update_best(step, {"accuracy": value})
    assert lowest.best == {"perplexity": 1.0, "step": 3}
    assert highest.best == {"accuracy": 3.0, "step": 2}


def test_a_number_that_is_not_finite_is_never_the_best() -> None:
    best = BestWeights(BestCheckpoint(), nn.Linear(1, 1))
    for step, value in enumerate((nan, 2.0, -inf, nan), 1):
        best.update_best(step, {"loss": value})
    assert best.best == {"loss": 2.0, "step": 2}


def counted(predictions: Any, references: Any) -> Iterator[tuple[str, float]]:
    yield "errors", float(sum(p != r for p, r in zip(predictions, references, strict=True)))


def test_the_best_by_a_metric_that_validation_does_not_measure_is_refused_by_name() -> None:
    best = BestWeights(BestCheckpoint(metric="f1"), nn.Linear(1, 1))
    with pytest.raises(ValueError, match=r"'f1': .*loss, accuracy"):
        best.update_best(1, {"loss": 0.5, "accuracy": 0.9})  # of tags that are no entities


def overlap(predictions: Any, references: Any) -> Iterator[tuple[str, float]]:
    pairs = zip(predictions, references, strict=True)
    yield "overlap", float(np.mean([float(sum((p > 0) == (r > 0))) for p, r in pairs]))


def overwriting(predictions: Any, references: Any) -> Iterator[tuple[str, float]]:
    predictions[0][0] += 1
    yield from overlap(predictions, references)


def test_predictions_may_be_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    masks = [np.array([0.0, nan]), np.array([1.0, 1.0])]
    predictions = [np.array([0.0, 1.0]), np.array([1.0, nan])]
    monkeypatch.setitem(NAMED, Metric, dict(NAMED[Metric]))
    register(Metric, "overlap")(overlap)
    register(Metric, "overwriting")(overwriting)
    check_metric("overlap", predictions, masks)
    check_metric("overlap", [*map(tensor, predictions)], [*map(tensor, masks)])
    with pytest.raises(AssertionError, match="overwriting modifies its inputs"):
        check_metric("overwriting", predictions, masks)
