"""Common names of columns."""

from collections.abc import Iterable, Sequence
from typing import Any

from ...recipe.data.cells import is_number
from ...recipe.data.formats import Fields
from ...support.synonyms import closest_name

MOST_OF_THEM = 0.9  # of the lines of a file without a known name hold the delimiter

TEXT_COLUMNS = (
    "text",
    "sentence",
    "sentence1",
    "premise",
    "first",
    "question1",
    "sentence_a",
    "#1 string",
    "review",
    "content",
    "question",
)
SECOND_TEXT_COLUMNS = (
    "sentence2",
    "hypothesis",
    "second",
    "question2",
    "sentence_b",
    "#2 string",
    "text2",
    "text_b",
)
LABEL_COLUMNS = (
    "label",
    "labels",
    "gold_label",
    "class",
    "category",
    "target",
    "score",
    "similarity",
    "relatedness",
    "relatedness_score",
    "sentiment",
    "quality",
    "rating",
    "stars",
    "intent",
    "polarity",
    "y",
    "tags",
    "ner_tags",
    "answer",
)
IMAGE_COLUMNS = ("image", "img", "images", "picture", "photo")
WORD_COLUMNS = ("words", "tokens")
TAG_COLUMNS = ("tags", "ner_tags", "ner", "pos_tags", "labels")
CONTEXT_COLUMNS = ("context", "ctx", "startphrase", "question", "premise", "sent1", "text")
ENDING_COLUMNS = ("endings", "choices", "options", "answers")
SOURCE_COLUMNS = ("source", "src", "en")
TARGET_COLUMNS = ("target", "tgt", "trg", "de", "fr")
COMMON_COLUMNS = {
    *TEXT_COLUMNS,
    *SECOND_TEXT_COLUMNS,
    *LABEL_COLUMNS,
    *WORD_COLUMNS,
    *TAG_COLUMNS,
    *CONTEXT_COLUMNS,
    *ENDING_COLUMNS,
    *SOURCE_COLUMNS,
    *TARGET_COLUMNS,
    "prompt",
    "id",
} - {"y"}

# The first line


def is_common_column_name(name: str) -> bool:
    return name.lower().strip("#_ ") in COMMON_COLUMNS


def mostly_numbers(cells: Sequence[Any]) -> bool:
    """Return whether almost all values are numbers."""
    return bool(cells) and sum(map(is_number, cells)) >= MOST_OF_THEM * len(cells)


# Columns of a row


def find_column(fields: Fields, names: Iterable[str], but: Sequence[str | None] = ()) -> str | None:
    """Return the first of these names that is a column, ignoring case."""
    lower = {name.strip().lower(): name for name in reversed(list(fields)) if name not in but}
    return next((lower[name] for name in names if name in lower), None)


def require_column(fields: Fields, column: str | None, what: str, option: str = "--columns") -> str:
    if column is None:
        raise ValueError(
            f"no column is recognised as the {what}; available: {', '.join(map(repr, fields))}; "
            f"name it with {option}"
        )
    return column


def check_columns_exist(fields: Fields, columns: Sequence[str]) -> None:
    wrong = next((name for name in columns if name not in fields), None)
    if wrong is not None:
        near = closest_name(wrong, [*map(str, fields)])
        way_out = f"did you mean {near!r}?" if near else "name one of these"
        raise ValueError(f"no column {wrong!r} among {', '.join(map(repr, fields))}; {way_out}")
