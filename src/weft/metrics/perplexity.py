"""Perplexity: per token, and as bits per byte, which are comparable across tokenizers."""

from collections.abc import Iterator, Sequence
from math import exp, log

from ..recipe.metrics import FunctionMetric, Scores
from .rows import check_pairs


def perplexity(surprises: Sequence[float], size: int | None = None) -> Scores:
    """Yield loss and perplexity.

    Args:
        surprises: the negative log-probability of each token in nats.
        size: the size of the text in UTF-8 bytes.
    """
    if not surprises:
        raise ValueError("the text has no token to score; give more text")
    total = sum(surprises)
    yield "loss", total / len(surprises)
    yield "perplexity", exp(min(total / len(surprises), 700.0))
    if size:
        yield "bits per byte", total / log(2) / size
    yield "tokens", len(surprises)


def token_perplexity(log_probabilities: Sequence[float], tokens: Sequence[object]) -> Scores:
    """Perplexity from the log-probability, in nats, of each token of a text."""
    check_pairs(log_probabilities, tokens, "log-probabilities")
    scores = dict(perplexity([-value for value in log_probabilities]))
    yield "perplexity", scores["perplexity"]
    yield "loss", scores["loss"]


PERPLEXITY = FunctionMetric("perplexity", token_perplexity, greater_is_better=False)


def evaluation_windows(tokens: int, length: int, stride: int) -> Iterator[tuple[int, int, int]]:
    """Yield windows over a text of `tokens` tokens: start, stop and the first new token. Every
    token but the first is scored once; after the first window, with at least `length` - `stride`
    tokens of context.
    """
    if not 0 < stride <= length:
        raise ValueError(f"stride = {stride} must be from 1 to {length}, the length of a window")
    start = 0
    first_scored = 1
    while first_scored < tokens:
        stop = min(start + length + 1, tokens)
        yield start, stop, first_scored
        start = start + stride
        first_scored = stop
