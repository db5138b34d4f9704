"""Answers as spans of a text."""

from pathlib import Path

import numpy as np
import pytest
import torch

from weft import recipe as R
from weft import spec as S
from weft.support.order import sample_generator
from weft.tasks.question_answering import best_span

from .cases import bert
from .made import SPECIAL, Given, LengthLimitedSamples, batch, build_pair, meta, rows
from .tuning import TEXT, mean, questions, ready, told, twins

ROW = R.ContextQuestions(max_length=32, stride=8, max_question_length=8)
BEGIN = SPECIAL["bos"]
END = SPECIAL["eos"]


@pytest.mark.parametrize(
    ("start", "end", "places"), [(0, 2, (5, 7)), (1, 1, (6, 6)), (-1, -1, (0, 0))]
)
def test_places_count_from_the_rows_begin_and_no_answer_points_there(
    start: int, end: int, places: tuple[int, int]
) -> None:
    corruption, _ = build_pair(R.QuestionAnswering(), bert(head=S.SpanHead()), meta(ROW))
    sample = {
        "question": np.array([7, 8, 9]),
        "context": np.array([11, 12, 13]),
        "start": start,
        "end": end,
    }
    row = corruption(LengthLimitedSamples(Given([sample]), 32), 0, sample_generator(0, 0, 0))
    assert row["tokens"].tolist() == [BEGIN, 7, 8, 9, END, 11, 12, 13, END]
    assert row["segments"].tolist() == [0] * 5 + [1] * 4
    assert (row["labels_start"], row["labels_end"]) == places
    assert row["context"].tolist() == [5, 8]
    if start >= 0:
        assert row["tokens"][places[0] : places[1] + 1].tolist() == [11, 12, 13][start : end + 1]


def test_the_loss_is_transformers(tmp_path: Path) -> None:
    """Which also scores padding; so every row is shown to it alone."""
    other, model = twins("BertForQuestionAnswering", tmp_path, **TEXT)
    corruption, objective, given = ready(R.QuestionAnswering(), model, meta(ROW), questions(14))
    theirs = []
    for row in rows(corruption, questions(14)):
        alone = batch(corruption, [row])
        theirs.append(
            other(
                **told(alone),
                start_positions=alone["labels_start"],
                end_positions=alone["labels_end"],
            ).loss.item()
        )
        assert abs(mean(corruption, objective, alone) - theirs[-1]) <= 1e-5
    assert abs(mean(corruption, objective, given) - np.mean(theirs)) <= 1e-5
    assert np.mean(theirs) > 0.5


@pytest.mark.parametrize("longest", [1, 2, 5, 30, 100])
def test_the_best_span_is_the_best_of_all_spans(longest: int) -> None:
    torch.manual_seed(longest)
    start_BL, end_BL = torch.randn(2, 60, 17, dtype=torch.float64)
    context = torch.tensor(
        [sorted(np.random.default_rng(i).choice(18, 2, replace=False).tolist()) for i in range(60)]
    )
    found = best_span(start_BL, end_BL, context, longest)
    for b, (first, after) in enumerate(context.tolist()):
        spans = {
            (i, j): float(start_BL[b, i] + end_BL[b, j])
            for i in range(first, after)
            for j in range(i, min(i + longest, after))
        }
        best = max(spans, key=lambda span: spans[span])
        assert (int(found.start_B[b]), int(found.end_B[b])) == best
        assert float(found.score_B[b]) == spans[best]
        assert float(found.no_answer_B[b]) == float(start_BL[b, 0] + end_BL[b, 0])
