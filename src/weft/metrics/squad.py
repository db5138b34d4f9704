"""Metrics of SQuAD (1.1: Rajpurkar et al. 2016, arXiv:1606.05250, section 6.1; 2.0: 2018,
arXiv:1806.03822, section 4.3).
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from string import punctuation
from typing import NamedTuple

from ..recipe.metrics import Scores
from .rows import check_pairs

Score = Callable[[str, str], float]
ARTICLES = re.compile(r"\b(a|an|the)\b")
MARKS = str.maketrans("", "", punctuation)


class AnswerPrediction(NamedTuple):
    """The best answer in a text, and the margin by which no answer scores better."""

    text: str
    no_answer_margin: float = float("-inf")


def normalise_answer(answer: str) -> str:
    """Return the answer in lower case, without punctuation, articles and repeated spaces."""
    return " ".join(ARTICLES.sub(" ", answer.lower().translate(MARKS)).split())


def exact_match(predictions: str, references: str) -> float:
    return float(normalise_answer(predictions) == normalise_answer(references))


def token_f1(predictions: str, references: str) -> float:
    """Return the F1 of words, counted with multiplicity; two empty answers are equal."""
    predicted_tokens = normalise_answer(predictions).split()
    true = normalise_answer(references).split()
    if not predicted_tokens or not true:
        return float(predicted_tokens == true)
    return (
        2
        * (Counter(predicted_tokens) & Counter(true)).total()
        / (len(predicted_tokens) + len(true))
    )


def exact(predictions: Sequence[str], references: Sequence[Sequence[str]]) -> Scores:
    """Yield the percentage of answers that equal a reference; without references, the empty answer
    is correct.
    """
    check_pairs(predictions, references)
    yield (
        "exact_match",
        mean_percent(map(partial(best_over_answers, exact_match), predictions, references)),
    )


def answer_f1(predictions: Sequence[str], references: Sequence[Sequence[str]]) -> Scores:
    """Yield the mean word F1 in percent, each answer against its closest reference."""
    check_pairs(predictions, references)
    yield "f1", mean_percent(map(partial(best_over_answers, token_f1), predictions, references))


def squad_metrics(
    predictions: Mapping[str, AnswerPrediction],
    references: Mapping[str, Sequence[str]],
    threshold: float = 0.0,
) -> Scores:
    """Yield exact match and F1 in percent over all questions of `right`, each against its closest
    reference. If some questions have no answer, an answer is empty if no answer scores more than
    `threshold` better.
    """
    if not references:
        raise ValueError("the references contain no question; give at least one")
    unanswerable = [i for i, answers in references.items() if not answers]
    kinds = {"exact_match": exact_match, "f1": token_f1}
    for name, score in kinds.items():
        each = {
            i: best_over_answers(
                score,
                ""
                if unanswerable and predictions[i].no_answer_margin > threshold
                else predictions[i].text,
                references[i],
            )
            for i in references
        }
        yield name, mean_percent(each.values())
        if unanswerable:
            yield (
                f"has_answer_{name}",
                mean_percent([s for i, s in each.items() if references[i]]),
            )
            yield f"no_answer_{name}", mean_percent([each[i] for i in unanswerable])
    for name, score in kinds.items() if unanswerable else ():
        highest, at = best_threshold(predictions, references, score)
        yield f"best_{name}", highest
        yield f"best_{name}_threshold", at


def best_over_answers(score: Score, predictions: str, answers: Sequence[str]) -> float:
    """Return the best score over the references. References that are empty after normalisation are
    ignored, unless all are; without any reference, the empty answer is correct.
    """
    return max(
        score(predictions, answer) for answer in [a for a in answers if normalise_answer(a)] or [""]
    )


def mean_percent(scores: Iterable[float]) -> float:
    values = list(scores)
    return 100 * sum(values) / len(values) if values else 0.0


def best_threshold(
    predictions: Mapping[str, AnswerPrediction],
    references: Mapping[str, Sequence[str]],
    score: Score,
) -> tuple[float, float]:
    """Return the highest mean over all thresholds and the lowest such threshold."""
    total = sum(not answers for answers in references.values()) * 1.0
    highest = total
    at = min(s.no_answer_margin for s in predictions.values()) - 1.0
    order = sorted(references, key=lambda i: predictions[i].no_answer_margin)
    for place, i in enumerate(order):
        score_without_answer = 0 if references[i] else 1
        score_with_answer = best_over_answers(score, predictions[i].text, references[i])
        total += score_with_answer - score_without_answer
        # equal ones change together
        last = (
            place + 1 == len(order)
            or predictions[order[place + 1]].no_answer_margin > predictions[i].no_answer_margin
        )
        if last and total > highest:
            highest = total
            at = predictions[i].no_answer_margin
    return 100 * highest / len(references), at
