"""Answers found in a text (SQuAD 1.1: Rajpurkar et al. 2016, arXiv:1606.05250, section 6.1; 2.0: 2018, arXiv:1806.03822, section 4.3)."""
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from string import punctuation
from typing import NamedTuple

Scores = Iterator[tuple[str, float]]
Score = Callable[[str, str], float]
ARTICLES, MARKS = re.compile(r"\b(a|an|the)\b"), str.maketrans("", "", punctuation)


class Said(NamedTuple):
    """The best answer in a text, and how much better no answer scores."""
    text: str
    none: float = float("-inf")


def normalised(answer: str) -> str:
    """Small letters, no punctuation, no articles, single spaces."""
    return " ".join(ARTICLES.sub(" ", answer.lower().translate(MARKS)).split())


def exact(said: str, right: str) -> float:
    return float(normalised(said) == normalised(right))


def overlap(said: str, right: str) -> float:
    """F1 of the words of both, counted; two empty answers are the same."""
    own, true = normalised(said).split(), normalised(right).split()
    if not own or not true:
        return float(own == true)
    return 2 * (Counter(own) & Counter(true)).total() / (len(own) + len(true))


def squad(said: Mapping[str, Said], right: Mapping[str, Sequence[str]], threshold: float = 0.0) -> Scores:
    """Exact match and F1 in percent over all questions of `right`, each against the answer that suits it best. With questions that have
    no answer, the empty one is said where no answer scores more than `threshold` better."""
    if not right:
        raise ValueError("there is no question; give at least one")
    unanswerable = [i for i, answers in right.items() if not answers]
    kinds = {"exact match": exact, "F1": overlap}
    for name, score in kinds.items():
        each = {i: best(score, "" if unanswerable and said[i].none > threshold else said[i].text, right[i]) for i in right}
        yield name, mean(each.values())
        if unanswerable:
            yield f"{name} where there is an answer", mean([s for i, s in each.items() if right[i]])
            yield f"{name} where there is none", mean([each[i] for i in unanswerable])
    for name, score in kinds.items() if unanswerable else ():
        highest, at = best_threshold(said, right, score)
        yield f"{name} at its best threshold", highest
        yield f"best threshold for {name}", at


def best(score: Score, said: str, answers: Sequence[str]) -> float:
    """Answers of which nothing is left do not count, unless all are so; without any, the empty one is right."""
    return max(score(said, answer) for answer in [a for a in answers if normalised(a)] or [""])


def mean(scores: Iterable[float]) -> float:
    held = list(scores)
    return 100 * sum(held) / len(held) if held else 0.0


def best_threshold(said: Mapping[str, Said], right: Mapping[str, Sequence[str]], score: Score) -> tuple[float, float]:
    """The highest mean that any threshold gives, and the lowest such. First no answer everywhere; then one question after another gets
    its own."""
    total = sum(not answers for answers in right.values()) * 1.0
    highest, at = total, min(s.none for s in said.values()) - 1.0
    order = sorted(right, key=lambda i: said[i].none)
    for place, i in enumerate(order):
        total += best(score, said[i].text, right[i]) - (not right[i])
        last = place + 1 == len(order) or said[order[place + 1]].none > said[i].none     # equal ones change together
        if last and total > highest:
            highest, at = total, said[i].none
    return 100 * highest / len(right), at
