"""Questions on long contexts, split into overlapping windows, so that one window contains the whole
answer (BERT, arXiv:1810.04805, section 4.2).
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from ... import recipe as R
from .tokenizer import Array, Tokenizer

MARKS = 3  # begin, end, end; RoBERTa has one more between


@lru_cache(maxsize=8)
def encode_context(tokenizer: Tokenizer, context: str) -> tuple[Array, Array]:
    """Tokenise a context; cached, since many questions share one paragraph."""
    return tokenizer.encode_spans(context)


def question_windows(
    fields: dict[str, Any], row: R.ContextQuestions, tokenizer: Tokenizer
) -> Iterator[dict[str, Any]]:
    question = tokenizer.encode(fields["question"])[: row.max_question_length]
    context, spans = encode_context(tokenizer, fields["context"])
    marks = MARKS + 1 if "extra_sep" in tokenizer.special else MARKS
    width = row.max_length - marks - len(question)
    if width < 1:
        raise ValueError(
            f"ContextQuestions.max_length = {row.max_length} is too short for a context after "
            f"{len(question)} tokens of question; give a larger max_length"
        )
    first, last = answer_token_span(spans, fields["answer_start"], fields["answer_end"])
    step = min(row.stride, width)
    for begin in range(0, max(1, len(context) - width + step), step):
        end = min(begin + width, len(context))
        inside = begin <= first and last < end and first >= 0
        yield {
            "question": question,
            "context": context[begin:end],
            "id": fields["id"],
            "offsets": spans[begin:end].reshape(-1),
            "start": first - begin if inside else -1,
            "end": last - begin if inside else -1,
        }


def answer_token_span(spans: Array, begin: int, end: int) -> tuple[int, int]:
    """Return the first and last token that overlap the characters of the answer; -1, -1 without an
    answer."""
    touched = (
        np.flatnonzero((spans[:, 0] < end) & (spans[:, 1] > begin)) if begin >= 0 else np.zeros(0)
    )
    return (int(touched[0]), int(touched[-1])) if len(touched) else (-1, -1)
