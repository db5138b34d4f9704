"""Metrics with one fault each."""

import weft
from weft.testing import check_metric


@weft.register(weft.Metric, "own_accuracy")
def own_accuracy(predictions, references):
    if len(predictions) != len(references):
        raise ValueError(f"{len(predictions)} predictions of {len(references)} references")
    hits = [p == r for p, r in zip(predictions, references, strict=True)]
    yield "own_accuracy", sum(hits) / len(hits)


@weft.register(weft.Metric, "order")
def first_row_alone(predictions, references):
    yield "order", float(predictions[0] == references[0])


@weft.register(weft.Metric, "sorts in place")
def sorted_match(predictions, references):
    # the next metric reads other pairs
    predictions.sort()
    yield "sorts in place", next(own_accuracy(predictions, references))[1]


@weft.register(weft.Metric, "raises")
def last_row_by_number(predictions, references):
    yield "raises", float(predictions[5] == references[5])


def check(fault):
    check_metric(fault or "own_accuracy", ["a", "b", "c", "a", "d"], ["a", "c", "c", "a", "b"])
