"""Decode the target of a source."""

from math import log

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from weft import recipe as R
from weft.kernels.cross_entropy import IGNORE_INDEX
from weft.spec import SpecialTokens, replace
from weft.tasks.base import LengthLimitedSamples

from .cases import TEXT, gpt, transformer
from .made import VOCABULARY, Given, batch, build_pair, meta, pairs, rows, sure

PAIR = LengthLimitedSamples(
    Given([{"source": np.array([10, 11, 12], np.uint16), "target": np.array([20, 21], np.uint16)}]),
    3,
)


def test_the_decoder_reads_begin_and_the_target_and_says_the_target_and_end() -> None:
    corruption, _ = build_pair(R.Translation(), transformer(), meta(R.SourceTargetPairs()))
    row = corruption(PAIR, 0, np.random.default_rng(0))
    assert {name: value.tolist() for name, value in row.items()} == {  # cut at 3
        "tokens": [10, 11, 3],
        "target": [2, 20, 21],
        "labels": [20, 21, 3],
    }


def test_a_model_that_names_its_start_token_reads_that_first() -> None:
    corruption, _ = build_pair(
        R.Translation(),
        replace(transformer(), special_tokens=SpecialTokens(decoder_start=7)),
        meta(R.SourceTargetPairs()),
    )
    assert corruption(PAIR, 0, np.random.default_rng(0))["target"].tolist() == [7, 20, 21]


def test_the_loss_is_the_smoothed_cross_entropy_of_each_pair_alone() -> None:
    corruption, objective = build_pair(
        R.Translation(label_smoothing=0.2),
        transformer(),
        meta(R.SourceTargetPairs()),
        dtype=torch.float64,
    )
    objective.eval()
    given = rows(corruption, pairs(5, 12, 10))
    alone = torch.zeros((), dtype=torch.float64)
    for row in given:
        tokens, target, labels = (
            torch.from_numpy(row[name]) for name in ("tokens", "target", "labels")
        )
        alone += F.cross_entropy(
            objective.model(tokens[None], target[None])[0],
            labels,
            reduction="sum",
            label_smoothing=0.2,
        )
    torch.testing.assert_close(
        objective(batch(corruption, given))["token"], alone, rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_best_answer_scores_the_entropy_of_the_smoothed_labels(smoothing: float) -> None:
    corruption, objective = build_pair(
        R.Translation(label_smoothing=smoothing), transformer(), meta(R.SourceTargetPairs())
    )
    made = batch(corruption, rows(corruption, pairs(4, 12, 10)))
    labels = made["labels"][made["labels"] != IGNORE_INDEX]
    other = smoothing / VOCABULARY
    own = 1 - smoothing + other
    best = (
        sure(labels, VOCABULARY)
        if not smoothing
        else F.one_hot(labels, VOCABULARY).double() * log(own / other)
    )
    least = 0 if not smoothing else -(own * log(own) + (VOCABULARY - 1) * other * log(other))
    assert objective.loss_sums(best, made)["token"].item() == pytest.approx(
        least * len(labels), rel=1e-12
    )


def test_what_does_not_fit_is_refused_in_one_line() -> None:
    with pytest.raises(
        ValueError,
        match="Translation needs a model with an encoder and a decoder; this one has a decoder alone",
    ):
        build_pair(R.Translation(), gpt(), meta(R.SourceTargetPairs()))
    with pytest.raises(
        ValueError,
        match="Translation reads rows of SourceTargetPairs, not of Documents",
    ):
        build_pair(R.Translation(), transformer(), meta(TEXT))
    with pytest.raises(
        ValueError,
        match=r"needs the bos and eos token, which the tokenizer lacks; .* special_tokens=True",
    ):
        build_pair(R.Translation(), transformer(), meta(R.SourceTargetPairs(), special_tokens={}))
