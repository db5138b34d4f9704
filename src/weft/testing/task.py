"""Conformance of a task: `check_task`, like scikit-learn's `check_estimator`."""

import json
import math
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import torch

from .. import recipe as R
from ..data.batches.collate import collate
from ..data.batches.loader import to_torch
from ..data.shards.in_memory import InMemoryStore
from ..data.shards.store import Store
from ..data.tokenizing.tokenizer import Tokenizer
from ..data.tokenizing.train_tokenizer import fit_tokenizer
from ..spec import Spec
from ..support.order import sample_generator
from ..support.ranks import Ranks
from ..support.values import from_json, to_json
from ..tasks import build_task
from ..tasks.base import ArrayRow, Batch, LengthLimitedSamples
from ..tasks.predict import PredictOptions, predict_batches
from ..tasks.task import EvaluationData, TaskImplementation
from .value import calling

TOLERANCE = 1e-9  # of float64


def small_store(
    rows: Sequence[dict[str, Any]],
    schema: R.RowSchema,
    labels: tuple[str, ...] | None = None,
    tokenizer: R.TokenizerSpec | None = R.WordPiece(vocab_size=200),
) -> tuple[InMemoryStore, Tokenizer]:
    """Return rows as prepared data in memory, and the tokenizer, trained on their texts."""
    texts = [str(cell) for row in rows for cell in row.values()]
    trained: Any = fit_tokenizer(tokenizer, lambda: iter(texts)) if tokenizer else None
    return InMemoryStore(rows, schema, trained, labels), trained


def check_task(
    task: R.Task,
    spec: Spec,
    store: Store,
    *,
    length: int = 32,
    source: R.Source | None = None,
    teacher: Any = None,
) -> None:
    """Check that a task satisfies its contract on a small model and a few samples.

    Args:
        task: the task.
        spec: a small model with the task's head, without dropout.
        store: at least four samples; `small_store` makes one.
        length: row length in tokens.
        source: the files of the samples, for tasks that read the original text.
        teacher: a trained model, for tasks that have one.

    Raises:
        AssertionError: with the violated condition in one line; an exception of the task is its
            cause.
    """
    with calling(type(task).__name__):
        check_value(task, spec, store)
        implementation = build_task(
            task, spec, store.meta, seed=1, dtype=torch.float64, teacher=teacher
        )
        implementation.loss.eval()
        samples = implementation.preprocess.open_samples(store, length, include_partial=True)
        enough = "give at least four samples, so that they can be split over three ranks"
        assert len(samples) >= 4, enough
        rows = check_preprocess(implementation, samples)
        check_loss(implementation, rows)
        if type(implementation).predict is TaskImplementation.predict:
            assert not task.metrics, (
                f"{type(task).__name__} names metrics, but makes no predictions"
            )
            return
        predictions = check_predictions(implementation, samples, rows)
        check_metrics(implementation, predictions, EvaluationData(store, source))


def check_value(task: R.Task, spec: Spec, store: Store) -> None:
    name = type(task).__name__
    assert from_json(to_json(task)) == task, f"{name} changes when written to JSON and read back"
    assert isinstance(store.meta.rows, task.row_schemas), (
        f"{name}.row_schemas lacks the data's rows"
    )
    assert isinstance(spec.head, task.head), f"{name}.head is not the model's head"
    default = task.default_rows()
    assert isinstance(default, task.row_schemas), (
        f"{name}.default_rows() is none of its row_schemas"
    )
    known = ("loss", *task.metrics)
    assert task.select_by(store.meta.rows) in known, (
        f"{name}.select_by is none of {', '.join(known)}"
    )
    assert 0 < task.scored_fraction() <= 1, f"{name}.scored_fraction() is no fraction"
    assert 0 < task.visible_fraction() <= 1, f"{name}.visible_fraction() is no fraction"
    inferred = task.for_inference(store.meta.rows)
    again = inferred.for_inference(store.meta.rows)
    assert inferred == again, f"{name}.for_inference is not idempotent"


# Preprocessing


def check_preprocess(
    implementation: TaskImplementation, samples: LengthLimitedSamples
) -> list[ArrayRow]:
    """Check that a row depends only on the index of the sample and its random generator, not on
    earlier calls.
    """
    rows = preprocess(implementation, samples)
    away = deepcopy(implementation.preprocess)  # as in a worker
    for i in reversed(range(len(samples))):
        again = away(samples, i, sample_generator(0, 0, i))
        same = again.keys() == rows[i].keys() and all(
            np.array_equal(again[field], rows[i][field]) for field in again
        )
        assert same, (
            f"the row of sample {i} depends on the order of calls: preprocessing is not pure"
        )
    for row in rows:
        missing = implementation.preprocess.fields.keys() - row.keys()
        assert not missing, f"a row has no {', '.join(sorted(missing))}, which `fields` names"
        for field in implementation.preprocess.fields:
            size = len(row[field])
            assert size <= samples.length, f"{field} has {size} tokens; rows have {samples.length}"
    return rows


def preprocess(implementation: TaskImplementation, samples: LengthLimitedSamples) -> list[ArrayRow]:
    return [
        implementation.preprocess(samples, i, sample_generator(0, 0, i))
        for i in range(len(samples))
    ]


def batch_of(implementation: TaskImplementation, rows: list[ArrayRow]) -> Batch:
    return to_torch(collate(rows, implementation.preprocess.fields))


# Loss


def check_loss(implementation: TaskImplementation, rows: list[ArrayRow]) -> None:
    """Check that sums and counts of micro-batches, divided once, give the loss and gradient of the
    whole batch.
    """
    whole = batch_of(implementation, rows)
    sums = implementation.loss(whole)
    counts = implementation.preprocess.loss_counts(whole)
    names = sorted(implementation.loss.weights)
    assert sorted(sums) == sorted(counts) == names, (
        f"sums {sorted(sums)}, counts {sorted(counts)} and weights {names} must have the same terms"
    )
    for term, total in sums.items():
        assert total.dim() == 0, f"{term} is not one number"
        assert total.isfinite(), f"{term} is not finite"
        assert counts[term] > 0, f"{term} counts nothing in {len(rows)} samples"
    expected, gradient = loss_and_gradient(implementation, [rows])
    assert gradient > 0, "no parameter has a gradient"
    for parts in (2, 3):
        pieces = [rows[i::parts] for i in range(parts)]
        loss, norm = loss_and_gradient(implementation, pieces)
        why = "return sums over samples, not means, and keep samples independent of each other"
        assert abs(loss - expected) <= TOLERANCE * (1 + abs(expected)), (
            f"{parts} micro-batches have loss {loss}, the whole {expected}: {why}"
        )
        assert abs(norm - gradient) <= 1e-6 * gradient, (
            f"{parts} micro-batches have gradient norm {norm}, the whole {gradient}: {why}"
        )


def loss_and_gradient(
    implementation: TaskImplementation, pieces: list[list[ArrayRow]]
) -> tuple[float, float]:
    batches = [batch_of(implementation, piece) for piece in pieces]
    counts = [implementation.preprocess.loss_counts(batch) for batch in batches]
    total = {term: sum(count[term] for count in counts) for term in counts[0]}
    implementation.loss.zero_grad()
    loss = 0.0
    for batch in batches:
        sums = implementation.loss(batch)
        weights = implementation.loss.weights
        part = torch.stack([weights[term] * sums[term] / total[term] for term in total]).sum()
        part.backward()
        loss += part.item()
    gradients = [p.grad for p in implementation.loss.parameters() if p.grad is not None]
    return loss, math.sqrt(sum(float(g.square().sum()) for g in gradients))


# Predictions


def check_predictions(
    implementation: TaskImplementation, samples: LengthLimitedSamples, rows: list[ArrayRow]
) -> list[Any]:
    """Check that predictions are one plain value per sample, in order, and independent of the batch
    and the number of ranks.
    """
    outputs, whole = batch_outputs(implementation, rows)
    predictions = implementation.predict(outputs, whole)
    assert len(predictions) == len(rows), f"{len(predictions)} predictions for {len(rows)} samples"
    try:
        json.dumps(predictions)
    except TypeError as error:
        raise AssertionError(
            f"predict gives {type(predictions[0]).__name__} ({error}); give plain Python values, "
            "such as .tolist() does"
        ) from None
    for i, row in enumerate(rows):
        (alone,) = implementation.predict(*batch_outputs(implementation, [row]))
        assert_close(alone, predictions[i], f"the prediction of sample {i} depends on its batch")
    for size in (1, 2, 3):
        by_number: dict[int, Any] = {}
        for rank in range(size):
            ranks = SimulatedRank()
            ranks.rank = rank
            ranks.size = size
            options = PredictOptions(batch_size=2, ranks=ranks)
            device = next(implementation.loss.parameters()).device
            for numbers, batch, batch_predictions in predict_batches(
                implementation.preprocess,
                samples,
                implementation.loss.forward_outputs,
                device,
                options,
            ):
                for number, value in zip(
                    numbers, implementation.predict(batch_predictions, batch), strict=True
                ):
                    assert number not in by_number, f"sample {number} counts twice on {size} ranks"
                    by_number[number] = value
        assert sorted(by_number) == list(range(len(rows))), f"a sample is lost on {size} ranks"
        for number, value in by_number.items():
            assert_close(value, predictions[number], f"sample {number} differs on {size} ranks")
    return predictions


class SimulatedRank(Ranks):
    rank = 0
    size = 1

    def sum(self, numbers: list[float]) -> list[float]:
        return numbers


def batch_outputs(implementation: TaskImplementation, rows: list[ArrayRow]) -> tuple[Any, Batch]:
    batch = batch_of(implementation, rows)
    with torch.inference_mode():
        return implementation.loss.forward_outputs(batch), batch


def assert_close(a: Any, b: Any, message: str) -> None:
    """Compare nested lists of numbers."""
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        assert len(a) == len(b), message
        for one, other in zip(a, b, strict=True):
            assert_close(one, other, message)
    elif isinstance(a, float) and isinstance(b, float):
        assert abs(a - b) <= 1e-6 * (1 + abs(b)), f"{message}: {a} and {b}"
    else:
        assert a == b, f"{message}: {a!r} and {b!r}"


# Metrics


def check_metrics(
    implementation: TaskImplementation, predictions: list[Any], data: EvaluationData
) -> None:
    """Check that `evaluate` yields names and finite numbers, including every metric that the task
    names.
    """
    references = implementation.references(data)
    assert not len(references) or len(references) == len(predictions), (
        f"{len(references)} references for {len(predictions)} predictions; give one per sample"
    )
    metrics = dict(implementation.evaluate(predictions, references))
    assert metrics, "evaluate yields nothing"
    for name, value in metrics.items():
        assert isinstance(value, str) or math.isfinite(value), f"{name} = {value} is not finite"
    missing = set(implementation.task.metrics) - metrics.keys()
    assert not missing, f"evaluate does not yield {', '.join(sorted(missing))}"
    again = dict(implementation.evaluate(predictions, references))
    assert again == metrics, "evaluate returns different values the second time"
