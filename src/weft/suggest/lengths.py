"""Lengths of rows in tokens, counted with a tokenizer or estimated from words."""

from collections.abc import Sequence
from math import ceil
from typing import Any

import numpy as np

from .. import recipe as R
from ..data.shards.encode import build_encoder
from ..data.tokenizing.question_windows import question_windows
from ..data.tokenizing.tokenizer import Tokenizer
from ..recipe.data.formats import SourceRow
from .suggestion import rounded_up

LONGEST = 512  # tokens of a row
WINDOW = 384  # tokens of a window of a context
COVERED = 0.99  # the fraction of rows that fit whole
PIECES_PER_WORD = 1.4  # of subwords, about
SAMPLED_ROWS = 50_000  # whose tokens are counted
SAMPLED_QUESTIONS = 2000


def spread(items: Sequence[SourceRow], count: int) -> Sequence[SourceRow]:
    """Return about so many rows, at equal distances."""
    return items[:: max(1, len(items) // count)]


def row_length(
    items: Sequence[SourceRow], row: R.RowSchema, tokenizer: Tokenizer, max_length: int
) -> int:
    """Return the length that almost all rows fit into; of tagged words all, since a tag must not be
    cut off.
    """
    tagged = isinstance(row, R.TaggedWords)
    some = list(items if tagged else spread(items, SAMPLED_ROWS))
    columns = build_encoder(row, tokenizer, row.labels)(some)
    counts = [tokens_per_row(columns[name]) for name in row.length_columns]
    if isinstance(row, R.TemplatedPairs):
        return round_up_to_8(np.quantile(np.max(counts, axis=0) + 2, COVERED), max_length)
    lengths = np.sum(counts, axis=0) + len(counts) + 1
    return round_up_to_8(lengths.max() if tagged else np.quantile(lengths, COVERED), max_length)


def tokens_per_row(column: tuple[Any, ...]) -> Any:
    """Return how many tokens each row of an encoded column has; of lists of lists, the longest."""
    _, ends, *outer = column
    lengths = np.diff(ends, prepend=0)
    if not outer:
        return lengths
    starts = np.concatenate([[0], outer[0][:-1]])
    return np.maximum.reduceat(lengths, starts)


def question_rows(
    items: Sequence[SourceRow], tokenizer: Tokenizer, max_length: int, is_given: bool
) -> tuple[R.ContextQuestions, int]:
    """Return the windows of contexts, and about how many there are.

    Args:
        items: questions with their contexts.
        tokenizer: of the model.
        max_length: the largest length of a window.
        is_given: whether windows have exactly this length.
    """
    some = [item.fields for item in spread(items, SAMPLED_QUESTIONS)]
    if not is_given:
        texts = [[fields[name] for fields in some] for name in ("question", "context")]
        counts = [tokens_per_row(tokenizer.encode_many(part)) for part in texts]
        max_length = round_up_to_8(
            np.quantile(np.sum(counts, axis=0) + 3, COVERED), min(max_length, WINDOW)
        )
    row = R.ContextQuestions(max_length=max_length, stride=min(128, max_length // 2))
    windows = sum(1 for fields in some for _ in question_windows(fields, row, tokenizer))
    return row, round(windows / len(some) * len(items))


def round_up_to_8(length: Any, max_length: int) -> int:
    return min(max_length, max(16, 8 * -(-ceil(float(length)) // 8)))


def estimated_length(words: Sequence[int], max_length: int | None = None) -> int:
    """Return the number of tokens that almost all rows of so many words fit into."""
    ordered = sorted(words)
    usual = ordered[min(len(ordered) - 1, int(COVERED * len(ordered)))]
    return rounded_up(PIECES_PER_WORD * usual + 2, 16, max_length or LONGEST)
