"""The right one of several endings."""
from collections.abc import Iterator, Sequence

Scores = Iterator[tuple[str, float]]


def choice(scores: Sequence[Sequence[float]], right: Sequence[int], lengths: Sequence[Sequence[int]] | None = None) -> Scores:
    """How often the right ending scores highest, the first of equal ones; with `lengths`, also where a score is divided by its
    ending's (Brown et al. 2020, arXiv:2005.14165, section 2.4)."""
    if len(scores) != len(right) or not right:
        raise ValueError(f"{len(scores)} answers to {len(right)} questions; give one each, and at least one")
    yield "accuracy", sum(own.index(max(own)) == true for own, true in zip(scores, right, strict=True)) / len(right)
    if lengths is not None:
        shares = [[score / max(length, 1) for score, length in zip(*both, strict=True)] for both in zip(scores, lengths, strict=True)]
        yield "accuracy by length", sum(own.index(max(own)) == true for own, true in zip(shares, right, strict=True)) / len(right)
