"""Metrics compared with another implementation or hand-computed values."""

import random
from collections.abc import Callable
from math import exp, log

import numpy as np
import pytest

from weft.metrics.classification import (
    accuracy,
    classification_metrics,
    f1,
    macro_f1,
    matthews,
    multiple_choice_accuracy,
)
from weft.metrics.correlation import pearson, spearman
from weft.metrics.entities import Entity, entity_f1, find_entities, tagging_metrics
from weft.metrics.perplexity import evaluation_windows, perplexity
from weft.metrics.squad import (
    AnswerPrediction,
    best_threshold,
    exact_match,
    normalise_answer,
    squad_metrics,
    token_f1,
)


def value(found: object) -> float:
    ((_, number),) = found  # type: ignore[misc]
    return float(number)


@pytest.mark.parametrize("kinds", [2, 5])
def test_accuracy_f1_and_matthews_are_scikit_learns(kinds: int) -> None:
    metrics = pytest.importorskip("sklearn.metrics", reason="the oracle: pip install scikit-learn")
    draw = np.random.default_rng(0)
    for _ in range(20):
        right, said = draw.integers(kinds, size=(2, 30)).tolist()
        assert value(accuracy(said, right)) == pytest.approx(
            metrics.accuracy_score(right, said), abs=1e-12
        )
        assert value(macro_f1(said, right)) == pytest.approx(
            metrics.f1_score(right, said, average="macro"), abs=1e-12
        )
        assert value(matthews(said, right)) == pytest.approx(
            metrics.matthews_corrcoef(right, said), abs=1e-12
        )
        if kinds == 2:
            assert value(f1(said, right, 1)) == pytest.approx(
                metrics.f1_score(right, said), abs=1e-12
            )


def test_a_constant_classifier_has_no_correlation_and_no_f1_of_the_other_class() -> None:
    assert dict(classification_metrics(["a"] * 4, ["a", "b", "a", "a"], ("a", "b"))) == {
        "accuracy": 0.75,
        "f1": 0.0,
        "matthews": 0.0,
    }
    assert list(dict(classification_metrics(["a"], ["c"], ("a", "b", "c")))) == [
        "accuracy",
        "f1",
        "matthews",
    ]
    with pytest.raises(ValueError, match="0 predictions for 0 references"):
        dict(accuracy([], []))


def test_correlations_are_scipys_also_with_ties() -> None:
    stats = pytest.importorskip("scipy.stats", reason="the oracle: pip install scipy")
    draw = np.random.default_rng(0)
    for _ in range(20):
        said = draw.normal(size=40).round(1)
        right = draw.integers(6, size=40) / 5
        assert value(pearson(said, right)) == pytest.approx(
            stats.pearsonr(said, right)[0], abs=1e-12
        )
        assert value(spearman(said, right)) == pytest.approx(
            stats.spearmanr(said, right)[0], abs=1e-12
        )


@pytest.mark.parametrize("measure", [pearson, spearman])
def test_what_never_changes_has_no_correlation_however_its_mean_is_rounded(
    measure: Callable[..., object],
) -> None:
    assert np.isnan(value(measure([1.7] * 7, range(7))))
    assert np.isnan(value(measure(range(7), [1.7] * 7)))


@pytest.mark.parametrize("marks", ["BIO", "IO", "BIESO"])
def test_entities_are_seqevals_for_iob1_iob2_and_iobes_and_for_tags_out_of_turn(marks: str) -> None:
    metrics = pytest.importorskip("seqeval.metrics", reason="the oracle: pip install seqeval")
    from seqeval.metrics.sequence_labeling import get_entities

    draw = random.Random(0)
    names = ["O"] + [f"{mark}-{kind}" for mark in marks if mark != "O" for kind in ("PER", "LOC")]
    for _ in range(30):
        right = [[draw.choice(names) for _ in range(draw.randint(1, 12))] for _ in range(8)]
        said = [
            [tag if draw.random() < 0.6 else draw.choice(names) for tag in own] for own in right
        ]
        assert [tuple(e) for e in find_entities(right[0])] == get_entities(right[0])
        found = dict(entity_f1(said, right))
        assert found["f1"] == pytest.approx(metrics.f1_score(right, said), abs=1e-12)
        assert found["precision"] == pytest.approx(metrics.precision_score(right, said), abs=1e-12)
        assert found["recall"] == pytest.approx(metrics.recall_score(right, said), abs=1e-12)
        report = metrics.classification_report(right, said, output_dict=True, zero_division=0)
        assert found["f1_PER"] == pytest.approx(report["PER"]["f1-score"], abs=1e-12)


def test_three_schemes_name_the_same_entities() -> None:
    wanted = [Entity("PER", 0, 1), Entity("PER", 2, 2), Entity("LOC", 4, 4)]
    assert find_entities(["I-PER", "I-PER", "B-PER", "O", "I-LOC"]) == wanted
    assert find_entities(["B-PER", "I-PER", "B-PER", "O", "B-LOC"]) == wanted
    assert find_entities(["B-PER", "E-PER", "S-PER", "O", "S-LOC"]) == wanted
    assert find_entities(["B-PER", "L-PER", "U-PER", "O", "U-LOC"]) == wanted


def test_tags_without_entities_are_counted_by_words() -> None:
    assert dict(tagging_metrics([["NOUN", "VERB"], ["ADJ"]], [["NOUN", "VERB"], ["NOUN"]])) == {
        "accuracy": 2 / 3
    }


# SQuAD


def test_answers_are_compared_without_case_punctuation_articles_and_gaps() -> None:
    assert normalise_answer("The  Eiffel-Tower, an (iron) lattice!") == "eiffeltower iron lattice"
    assert exact_match("the cat.", "Cat") == 1.0
    assert token_f1("a black cat", "the black dog") == 0.5  # one word of two on either side
    # a word counts as often as it stands there
    assert token_f1("cat cat", "cat cat dog") == pytest.approx(4 / 5)
    assert token_f1("cat cat", "cat") == pytest.approx(2 / 3)
    assert (token_f1("", ""), token_f1("the", "a"), token_f1("cat", "")) == (1.0, 1.0, 0.0)


def test_the_best_of_several_answers_counts_and_scores_are_percent() -> None:
    found = dict(
        squad_metrics(
            {"1": AnswerPrediction("Denver Broncos"), "2": AnswerPrediction("gold")},
            {"1": ["Broncos", "The Denver Broncos"], "2": ["golden", "red"]},
        )
    )
    assert found == {"exact_match": 50.0, "f1": 50.0}


def test_a_question_without_answer_is_right_where_none_scores_more_than_the_threshold_better() -> (
    None
):
    said = {
        "1": AnswerPrediction("cat", -1.0),
        "2": AnswerPrediction("dog", 2.0),
        "3": AnswerPrediction("big cow", 0.5),
    }
    right = {"1": ["cat"], "2": [], "3": ["cow"]}
    found = dict(squad_metrics(said, right))
    assert (found["exact_match"], found["f1"]) == (pytest.approx(200 / 3), pytest.approx(200 / 3))
    assert (found["has_answer_f1"], found["no_answer_f1"]) == (50.0, 100.0)
    assert dict(squad_metrics(said, right, threshold=1.0))["f1"] == pytest.approx(
        100 * (1 + 1 + 2 / 3) / 3
    )
    assert dict(squad_metrics(said, right, threshold=3.0))["no_answer_f1"] == 0.0
    assert found["best_f1"] == pytest.approx(100 * (1 + 1 + 2 / 3) / 3)
    assert found["best_f1_threshold"] == 0.5


def test_an_answer_of_which_nothing_is_left_is_an_answer_all_the_same() -> None:
    found = dict(
        squad_metrics(
            {"a": AnswerPrediction("red", 9.0), "b": AnswerPrediction("The")},
            {"a": ["red"], "b": ["the"]},
        )
    )
    assert found == {"exact_match": 100.0, "f1": 100.0}
    found = dict(
        squad_metrics(
            {"a": AnswerPrediction("x", -1.0), "b": AnswerPrediction("red", 1.0)},
            {"a": ["the"], "b": []},
        )
    )
    assert found["no_answer_exact_match"] == 100.0
    assert found["has_answer_exact_match"] == found["exact_match"] - 50.0 == 0.0
    assert found["best_exact_match"] == 50.0


def test_the_best_threshold_is_that_of_trying_them_all() -> None:
    draw = random.Random(0)
    for _ in range(50):
        ids = [str(i) for i in range(12)]
        right = {i: list[str]() if draw.random() < 0.5 else [draw.choice("xyz")] for i in ids}
        said = {i: AnswerPrediction(draw.choice("xyz"), float(draw.randint(-3, 3))) for i in ids}

        def at(
            threshold: float,
            said: dict[str, AnswerPrediction] = said,
            right: dict[str, list[str]] = right,
        ) -> float:
            return (
                100
                * sum(
                    exact_match(
                        "" if s.no_answer_margin > threshold else s.text, (right[i] or [""])[0]
                    )
                    for i, s in said.items()
                )
                / len(said)
            )

        highest, place = best_threshold(said, right, exact_match)
        assert highest == pytest.approx(max(at(t) for t in (-9.0, *range(-3, 4))))
        assert at(place) == pytest.approx(highest)


# Choices, running text


def test_the_highest_score_chooses_and_length_can_change_it() -> None:
    found = dict(
        multiple_choice_accuracy([[-3.0, -4.0], [-1.0, -1.0]], [1, 0], lengths=[[1, 2], [1, 1]])
    )
    assert found == {"accuracy": 0.5, "accuracy by length": 1.0}


def test_perplexity_is_by_token_and_bits_are_by_byte() -> None:
    found = dict(perplexity([log(2), log(8)], size=4))
    assert found == {
        "loss": pytest.approx(log(4)),
        "perplexity": pytest.approx(4.0),
        "bits per byte": pytest.approx(1.0),
        "tokens": 2,
    }
    assert dict(perplexity([0.0]))["perplexity"] == exp(0)


@pytest.mark.parametrize(
    ("tokens", "length", "stride"),
    [(2, 4, 2), (5, 4, 4), (6, 4, 4), (23, 8, 3), (24, 8, 8), (40, 8, 1), (9, 8, 5)],
)
def test_every_token_but_the_first_is_asked_once_with_enough_before_it(
    tokens: int, length: int, stride: int
) -> None:
    asked = []
    for start, stop, new in evaluation_windows(tokens, length, stride):
        assert stop - start <= length + 1
        assert start < new
        assert start == 0 or new - start >= length - stride + 1
        asked += range(new, stop)
    assert asked == list(range(1, tokens))


def test_a_stride_longer_than_the_window_is_refused() -> None:
    with pytest.raises(ValueError, match="stride = 9"):
        list(evaluation_windows(20, 8, 9))
