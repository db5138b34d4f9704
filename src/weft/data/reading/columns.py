"""Detection of the columns of a task, by name and by content."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ... import recipe as R
from ...recipe.data.cells import is_number
from ...recipe.data.formats import Fields
from .column_names import (
    CONTEXT_COLUMNS,
    ENDING_COLUMNS,
    LABEL_COLUMNS,
    MOST_OF_THEM,
    SECOND_TEXT_COLUMNS,
    SOURCE_COLUMNS,
    TAG_COLUMNS,
    TARGET_COLUMNS,
    TEXT_COLUMNS,
    WORD_COLUMNS,
    check_columns_exist,
    find_column,
    mostly_numbers,
    require_column,
)
from .image_columns import infer_labelled_images

ENDING = re.compile(r"(ending|choice|option|answer)[_ ]?\d+", re.IGNORECASE)
ID = re.compile(r"(^|[\s_#])(id|idx|index|guid|uid)$", re.IGNORECASE)
MAX_CLASSES = 20  # more distinct values are probably not classes
SAMPLE_ROWS = 1000  # rows by which the content of columns is detected


def infer_row_schema(
    row: R.RowSchema,
    rows: Sequence[Fields],
    columns: Sequence[str] = (),
    label: str | None = None,
    numeric: bool | None = None,
    pair: bool = False,
) -> R.RowSchema:
    """Return `row` with the columns of a table.

    Args:
        row: a row schema with default column names.
        rows: rows of the table.
        columns: the columns to read in the row's order, the label last unless `label` names it.
        label: the column of the label.
        numeric: whether the label is a number (True), a class (False), or either (None).
        pair: whether two texts are needed.
    """
    rows = typical_first(rows)
    fields = rows[0]
    names = list(columns)
    check_columns_exist(fields, [*names, *([label] if label else [])])
    match row:
        case R.ContextQuestions():
            return row
        case R.Documents():
            usual = find_column(fields, ("text", "document", "content"))
            return replace(row, text=names[0] if names else require_column(fields, usual, "text"))
        case R.SourceTargetPairs():
            return infer_pairs(fields, names)
    if label is None and len(names) > 1:
        *names, label = names
    match row:
        case R.TaggedWords():
            return infer_tagged_words(fields, names, label)
        case R.ChoiceQuestions():
            return infer_choices(rows, names, label)
        case R.LabelledTexts():
            numeric = True if row.numeric_label else numeric
            return infer_labelled_texts(row, rows, names, label, numeric, pair)
        case R.LabelledImages():
            return infer_labelled_images(row, rows, names, label)
    named = dict(zip(row.column_fields, columns, strict=False))
    row = replace(row, **named)  # type: ignore[type-var]
    check_columns_exist(fields, row.columns)
    return row


def infer_labelled_texts(
    row: R.LabelledTexts,
    rows: Sequence[Fields],
    names: list[str],
    label: str | None,
    numeric: bool | None,
    pair: bool,
) -> R.LabelledTexts:
    label = label or infer_label_column(rows, names, numeric)
    first, second, *more = [*(names or infer_text_columns(rows, [label])), None]
    if first is None or (second and more[1:]) or (pair and second is None):
        texts = ", ".join(repr(name) for name in (first, second, *more) if name)
        raise ValueError(
            f"the task needs {'two texts' if pair else 'one or two texts'}, not "
            f"{texts or 'none'}; name them: --columns TEXT [TEXT] LABEL"
        )
    return replace(row, text=first, second_text=second, label=label)


def typical_first(rows: Sequence[Fields]) -> list[Fields]:
    """Return the rows with a typical one first, since the first of a file may be broken."""
    kinds = [tuple((name, type(cell)) for name, cell in row.items()) for row in rows[:SAMPLE_ROWS]]
    usual = Counter(kinds).most_common(1)[0][0]
    return [rows[kinds.index(usual)], *rows]


def infer_pairs(fields: Fields, names: list[str]) -> R.SourceTargetPairs:
    if len(names) == 2:
        return R.SourceTargetPairs(source=names[0], target=names[1])
    if len(fields) < 2:
        raise ValueError(
            f"a pair needs two columns; available: {', '.join(map(repr, fields))}; give a table "
            "with a source and a target column"
        )
    source = find_column(fields, SOURCE_COLUMNS)
    target = find_column(fields, TARGET_COLUMNS)
    free = [name for name in fields if not ID.search(name)]
    # Of two columns, the one that is not known is the other
    if len(free) == 2:
        source = source or next(name for name in free if name != target)
        target = target or next(name for name in free if name != source)
    return R.SourceTargetPairs(
        source=require_column(fields, source, "source", "--columns SOURCE TARGET"),
        target=require_column(fields, target, "target", "--columns SOURCE TARGET"),
    )


def infer_tagged_words(fields: Fields, names: list[str], tags: str | None) -> R.TaggedWords:
    lists = {name: cell for name, cell in fields.items() if isinstance(cell, list)}
    if tags is None:
        tags = find_column(lists, TAG_COLUMNS)
    if tags is None and len(lists) > 1:
        tags = list(lists)[-1]
    words = names[0] if names else find_column(lists, WORD_COLUMNS, [tags])
    if words is None:
        words = next((name for name in lists if name != tags), None)
    if tags is None or words is None:
        raise ValueError(
            "tagging needs a list of words and a list of tags per row; give --columns WORDS TAGS "
            "or a CoNLL file"
        )
    return R.TaggedWords(words=words, tags=tags)


def ending_columns(fields: Fields) -> list[str]:
    """Return the columns of the endings in the order of the file, since a label is their index."""
    numbered = [name for name in fields if ENDING.fullmatch(name)]
    if len(numbered) > 1:
        return numbered
    lists = {name: cell for name, cell in fields.items() if isinstance(cell, list)}
    column = find_column(lists, ENDING_COLUMNS)
    return [column] if column else []


def infer_choices(rows: Sequence[Fields], names: list[str], label: str | None) -> R.ChoiceQuestions:
    context = names[0] if names else find_column(rows[0], CONTEXT_COLUMNS)
    endings = names[1:] if names else ending_columns(rows[0])
    if context is None or not endings:
        raise ValueError(
            "the context and its endings are not recognised among the columns; name them: "
            "--columns CONTEXT ENDING ENDING … LABEL"
        )
    label = label or infer_label_column(rows, [context, *endings])
    return R.ChoiceQuestions(context=context, endings=tuple(endings), label=label)


# Texts


def text_columns(rows: Sequence[Fields], columns: Sequence[str] = ()) -> tuple[str, str | None]:
    """Return the one or two columns of text to predict on."""
    check_columns_exist(rows[0], columns)
    if columns:
        return columns[0], columns[1] if len(columns) > 1 else None
    first = find_column(rows[0], TEXT_COLUMNS) or max(
        infer_text_columns(rows, [find_column(rows[0], LABEL_COLUMNS)]),
        key=lambda name: len(str(rows[0][name])),
    )
    return first, find_column(rows[0], SECOND_TEXT_COLUMNS, [first])


# By what they hold


def column_values(rows: Sequence[Fields], name: str) -> list[Any]:
    """Return the values of a column; a JSON row may lack it."""
    return [row.get(name) for row in rows]


def infer_label_column(
    rows: Sequence[Fields], texts: Sequence[str], number: bool | None = None
) -> str:
    """Return a column with the name of a label; else the most likely of those with few values, next
    to a text if there are several. With `number`, only numeric columns, or None."""
    fields = rows[0]
    if len(fields) < 2:
        raise ValueError(f"there is only the column {', '.join(map(repr, fields))}, and no label")
    free = [name for name in fields if name not in texts]
    if number is not None:
        free = [name for name in free if label_score(column_values(rows, name), number)] or free
    named = find_label(free)
    if named is not None:
        return named
    scores = {name: label_score(column_values(rows, name)) for name in free}
    highest = max(scores.values(), default=0)
    best = [name for name in free if highest and scores[name] == highest]
    if len(best) > 1:
        best = nearest_to_texts(rows, best)
    if len(best) != 1:
        raise ValueError(
            f"no column is recognised as the label; available: {', '.join(map(repr, fields))}; "
            "name the columns: --columns TEXT [TEXT] LABEL"
        )
    return best[0]


def find_label(names: Sequence[str]) -> str | None:
    """Return the column with the name of a label, the surest name first."""
    by_name = {name.lower().strip("#_ "): name for name in reversed(names)}
    return next((by_name[label] for label in LABEL_COLUMNS if label in by_name), None)


def nearest_to_texts(rows: Sequence[Fields], columns: list[str]) -> list[str]:
    """Return those of the columns that are nearest to a text; none without a text."""
    names = list(rows[0])
    texts = [i for i, name in enumerate(names) if looks_like_text(column_values(rows, name))]
    if not texts:
        return []
    distances = {name: min(abs(names.index(name) - i) for i in texts) for name in columns}
    return [name for name in columns if distances[name] == min(distances.values())]


def label_score(cells: list[Any], number: bool | None = None) -> int:
    """Return how much a column looks like a label: 0 if it is constant, often empty, or almost
    unique per row."""
    full = [
        cell
        for cell in cells
        if cell is not None and str(cell).strip() and not isinstance(cell, list | dict)
    ]
    few = len(set(map(str, full)))
    numbers = mostly_numbers(full)
    if few < 2 or len(full) < MOST_OF_THEM * len(cells):
        return 0
    if (number is True and not numbers) or (number is False and numbers and few > MAX_CLASSES):
        return 0
    if not numbers:
        return 2 if few <= MAX_CLASSES and few < len(cells) / 2 else 0
    has_fractions = any("." in str(cell) for cell in full)
    return 3 if few <= MAX_CLASSES or (has_fractions and few < len(cells)) else 0


def infer_text_columns(rows: Sequence[Fields], but: Sequence[str | None]) -> list[str]:
    """Return the columns of text in the order of the file: those with the name of a text, and those
    whose values are texts."""
    free = [name for name in rows[0] if name not in but and not ID.search(name)]
    usual_names = (*TEXT_COLUMNS, *SECOND_TEXT_COLUMNS)
    usual = {name for name in free if find_column({name: 0}, usual_names)}
    text_columns = [
        name for name in free if looks_like_text(column_values(rows, name), name in usual)
    ]
    if not text_columns and any(isinstance(cell, bytes) for cell in rows[0].values()):
        raise ValueError("the rows contain images, not text; give a table of texts")
    if not text_columns:
        raise ValueError(
            f"no column contains text; available: {', '.join(map(repr, rows[0]))}; name it: "
            "--columns TEXT LABEL"
        )
    return text_columns


def looks_like_text(cells: list[Any], usual: bool = False) -> bool:
    some = [cell for cell in cells[:SAMPLE_ROWS] if cell is not None]
    if not all(isinstance(cell, str) for cell in some):
        return False
    return usual or (
        sum(len(cell.split()) for cell in some) >= 1.5 * len(some)
        and len(set(some)) > len(some) / 4
        and not all(map(is_number, some))
    )
