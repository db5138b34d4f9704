"""Decode the target of a source."""
from math import log

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from weft import recipe as R
from weft.objectives import IGNORE, Reader, build
from weft.spec import Special, replace

from .cases import TEXT, gpt, transformer
from .made import VOCABULARY, Given, batch, meta, pairs, rows, sure

PAIR = Reader(Given([{"source": np.array([10, 11, 12], np.uint16), "target": np.array([20, 21], np.uint16)}]), 3)


def test_the_decoder_reads_begin_and_the_target_and_says_the_target_and_end() -> None:
    corruption, _ = build(R.Translation(), transformer(), meta(R.Pairs()))
    row = corruption(PAIR, 0, np.random.default_rng(0))
    assert {name: value.tolist() for name, value in row.items()} == {       # cut at 3
        "tokens": [10, 11, 3], "target": [2, 20, 21], "labels": [20, 21, 3]}


def test_a_model_that_names_its_start_token_reads_that_first() -> None:
    corruption, _ = build(R.Translation(), replace(transformer(), special=Special(start=7)), meta(R.Pairs()))
    assert corruption(PAIR, 0, np.random.default_rng(0))["target"].tolist() == [7, 20, 21]


def test_the_loss_is_the_smoothed_cross_entropy_of_each_pair_alone() -> None:
    corruption, objective = build(R.Translation(smoothing=0.2), transformer(), meta(R.Pairs()), dtype=torch.float64)
    objective.eval()
    given = rows(corruption, pairs(5, 12, 10))
    alone = torch.zeros((), dtype=torch.float64)
    for row in given:
        tokens, target, labels = (torch.from_numpy(row[name]) for name in ("tokens", "target", "labels"))
        alone += F.cross_entropy(objective.model(tokens[None], target[None])[0], labels, reduction="sum", label_smoothing=0.2)
    torch.testing.assert_close(objective(batch(corruption, given))["token"], alone, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_best_answer_scores_the_entropy_of_the_smoothed_labels(smoothing: float) -> None:
    corruption, objective = build(R.Translation(smoothing=smoothing), transformer(), meta(R.Pairs()))
    made = batch(corruption, rows(corruption, pairs(4, 12, 10)))
    labels = made["labels"][made["labels"] != IGNORE]
    other = smoothing / VOCABULARY
    own = 1 - smoothing + other
    best = sure(labels, VOCABULARY) if not smoothing else F.one_hot(labels, VOCABULARY).double() * log(own / other)
    least = 0 if not smoothing else -(own * log(own) + (VOCABULARY - 1) * other * log(other))
    assert objective.score(best, made)["token"].item() == pytest.approx(least * len(labels), rel=1e-12)


def test_what_does_not_fit_is_refused_in_one_line() -> None:
    with pytest.raises(ValueError, match="Translation needs a model with an encoder and a decoder; this one has a decoder alone"):
        build(R.Translation(), gpt(), meta(R.Pairs()))
    with pytest.raises(ValueError, match="Translation reads Pairs of a source and a target; the data holds Documents"):
        build(R.Translation(), transformer(), meta(TEXT))
    with pytest.raises(ValueError, match=r"needs the begin and end token, which the tokenizer lacks; .* special=True"):
        build(R.Translation(), transformer(), meta(R.Pairs(), special={}))
