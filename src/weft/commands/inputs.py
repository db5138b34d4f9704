"""What `weft classify`, `tag`, `answer`, `embed` and `fill` read: texts, pairs of texts, words, questions or images."""

import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from . import Fields
from .predict_options import AnswerOptions, TagOptions, TextOptions
from .rows import TABLE_SUFFIXES, image_rows, input_rows

if TYPE_CHECKING:
    from ..inference.open_model import OpenModel


def input_texts(
    options: TextOptions, pairs: bool = False, suffixes: tuple[str, ...] = TABLE_SUFFIXES
) -> list[Fields]:
    """Return single texts, or pairs of texts. `suffixes` are those of the output."""
    texts = options.texts
    rows = input_rows(options, texts, suffixes)
    if not texts or not pairs:
        return rows
    if len(texts) % 2:
        raise ValueError(f"--pairs needs an even number of texts; there are {len(texts)}")
    return [{"text": a, "text2": b} for a, b in zip(texts[::2], texts[1::2], strict=True)]


class Inputs(NamedTuple):
    """What a model is asked about."""

    rows: list[Fields]
    inputs: list[tuple[Any, str | None]]  # texts, pairs of texts, or images
    names: list[str]  # of the inputs on the screen


def rows_and_inputs(
    options: TextOptions, rows: list[Fields], model: "OpenModel", pairs: bool | None = None
) -> Inputs:
    """Return what a model reads; `pairs` as `text_pairs` takes it."""
    if model.reads_images:
        image_column = getattr(model.recipe and model.recipe.data.rows, "image", None)
        rows, images = image_rows(options, rows, image_column)
        return Inputs(rows, [(image, None) for image in images], [str(row["file"]) for row in rows])
    texts = text_pairs(options, rows, model, pairs)
    return Inputs(
        rows, texts, ["  |  ".join(text for text in pair if text is not None) for pair in texts]
    )


def text_pairs(
    options: TextOptions, rows: list[Fields], model: "OpenModel", pairs: bool | None = None
) -> list[tuple[str, str | None]]:
    """Return the texts of the rows.

    Args:
        options: of the command.
        rows: of the command or of a file.
        model: that reads them.
        pairs: whether a row must have a second text (True), may have one (False), or has one text only (None).
    """
    from ..data.reading.columns import text_columns

    columns = options.columns or trained_on(options, rows[0], model, bool(pairs))
    first, second = text_columns(rows, columns)
    if pairs is None:
        second = None
    elif pairs and second is None:
        raise ValueError(
            f"--pairs: which column is the second text? There are {', '.join(map(repr, rows[0]))}; name both with --columns"
        )
    if not options.texts and not options.columns and list(rows[0]) != ["text"]:
        print(
            f"weft: reading {first!r} as text" + (f", {second!r} as second text" if second else ""),
            file=sys.stderr,
        )
    for row in rows:
        if any(not isinstance(row.get(name), str) for name in (first, second) if name):
            raise ValueError(
                f"{str(row)[:80]} has no text in {first!r}" + (f" and {second!r}" if second else "")
            )
    return [(row[first], row[second] if second else None) for row in rows]


def trained_on(options: TextOptions, fields: Fields, model: "OpenModel", pairs: bool) -> list[str]:
    """Return the columns that the run was trained on, if the rows have them."""
    from ..recipe import LabelledTexts, TemplatedPairs

    row = None if options.texts or model.recipe is None else model.recipe.data.rows
    if isinstance(row, TemplatedPairs):
        return list(row.template_columns) if set(row.template_columns) <= set(fields) else []
    if not isinstance(row, LabelledTexts) or (row.second_text is None and pairs):
        return []
    columns = [row.text, *([row.second_text] if row.second_text else [])]
    return columns if set(columns) <= set(fields) else []


def words_of(options: TagOptions, rows: list[Fields], model: "OpenModel") -> list[list[str]]:
    """Return the words of a row: as stored, or its text split into words and punctuation."""
    from ..data.reading.column_names import WORD_COLUMNS, find_column
    from ..metrics.moses import tokenize

    column = options.columns[0] if options.columns else find_column(rows[0], WORD_COLUMNS)
    if column is not None and isinstance(rows[0].get(column), list):
        wrong = next(
            (i for i, row in enumerate(rows, 1) if not isinstance(row.get(column), list)), None
        )
        if wrong is not None:
            raise ValueError(f"row {wrong} has no list of words in {column!r}, as the first has")
        return [[str(word) for word in row[column]] for row in rows]
    return [
        text.split() if options.pre_split else tokenize(text, options.language)
        for text, _ in text_pairs(options, rows, model)
    ]


def questions(options: AnswerOptions) -> tuple[list[Fields], bool]:
    """Return rows with a question and a context, and whether they come from a SQuAD file."""
    if options.question or options.context:
        if options.input or not (options.question and options.context):
            raise ValueError("give --question and --context, or --input")
        return [{"question": options.question, "context": options.context}], False
    if options.input and is_squad(options.input):
        from ..data.formats.squad import read_questions

        return [
            {"id": row.id, "question": row.question, "context": row.context}
            for row in read_questions(options.input)
        ], True
    return input_rows(options, []), False


def is_squad(path: str) -> bool:
    from ..data.formats.sniff import detect_format, formats_by_suffix

    return "squad" in [f.name for f in formats_by_suffix(path)] and detect_format(path) == "squad"


def columns_of(options: AnswerOptions) -> tuple[str, str]:
    if options.columns and len(options.columns) != 2:
        raise ValueError("--columns: answer reads two, QUESTION CONTEXT")
    question, context = options.columns or ("question", "context")
    return question, context
