"""Inputs of `weft classify`, `tag`, `answer`, `embed` and `fill`: texts, pairs, words, questions
or images."""

import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from . import Fields
from .predict_options import AnswerOptions, TagOptions, TextOptions
from .rows import TABLE_SUFFIXES, image_rows, input_rows, input_table, rows_of

if TYPE_CHECKING:
    from ..data.reading.table import Table
    from ..inference.open_model import OpenModel


class Inputs(NamedTuple):
    """Rows and the model's input for each."""

    rows: list[Fields]
    # texts, pairs of texts, lists of words, or images
    inputs: list[Any]
    # of the inputs on the screen
    names: list[str]


def text_rows(
    options: TextOptions, pairs: bool = False, suffixes: tuple[str, ...] = TABLE_SUFFIXES
) -> list[Fields]:
    """Return single texts or pairs of texts. `suffixes` are the formats of the output file."""
    texts = options.texts
    rows = input_rows(options, texts, suffixes)
    if not texts or not pairs:
        return rows
    if len(texts) % 2:
        raise ValueError(f"--pairs needs an even number of texts, not {len(texts)}")
    return [{"text": a, "text2": b} for a, b in zip(texts[::2], texts[1::2], strict=True)]


def inputs_of_rows(
    options: TextOptions, rows: list[Fields], model: "OpenModel", pairs: bool | None = None
) -> Inputs:
    """Return images or pairs of texts; `text_pairs` describes `pairs`."""
    if model.reads_images:
        image_column = getattr(model.recipe and model.recipe.data.rows, "image", None)
        rows, images = image_rows(options, rows, image_column)
        return Inputs(rows, [(image, None) for image in images], [str(row["file"]) for row in rows])
    texts = text_pairs(options, rows, model, pairs)
    names = ["  |  ".join(text for text in pair if text is not None) for pair in texts]
    return Inputs(rows, texts, names)


def text_pairs(
    options: TextOptions, rows: list[Fields], model: "OpenModel", pairs: bool | None = None
) -> list[tuple[str, str | None]]:
    """Return the texts of the rows.

    Args:
        options: the options of the command.
        rows: the input rows.
        model: the model that reads the texts.
        pairs: True if each row must have a second text, False if it may have one, None if each
            row has one text.
    """
    from ..data.reading.columns import text_columns

    columns = options.columns or trained_on(options, rows[0], model, bool(pairs))
    first, second = text_columns(rows, columns)
    if pairs is None:
        second = None
    elif pairs and second is None:
        raise ValueError(
            "--pairs: cannot infer the columns of the two texts from "
            f"{', '.join(map(repr, rows[0]))}; give both with --columns"
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
    """Return the text columns of the run's training data if the rows have them, else none."""
    from ..recipe import LabelledTexts, TemplatedPairs

    row = None if options.texts or model.recipe is None else model.recipe.data.rows
    if isinstance(row, TemplatedPairs):
        return list(row.template_columns) if set(row.template_columns) <= set(fields) else []
    if not isinstance(row, LabelledTexts) or (row.second_text is None and pairs):
        return []
    columns = [row.text, *([row.second_text] if row.second_text else [])]
    return columns if set(columns) <= set(fields) else []


def masked_texts(options: TextOptions, rows: list[Fields], model: "OpenModel") -> Inputs:
    """Return the texts of the rows."""
    texts = [first for first, _ in text_pairs(options, rows, model)]
    return Inputs(rows, texts, texts)


def words_of_rows(options: TagOptions, rows: list[Fields], model: "OpenModel") -> Inputs:
    """Return the words of each row: a list in the table, or the text split into words."""
    words = words_of(options, rows, model)
    return Inputs(rows, words, [" ".join(sentence) for sentence in words])


def words_of(options: TagOptions, rows: list[Fields], model: "OpenModel") -> list[list[str]]:
    """Return the words of each row: a list in the table, or the text split into words."""
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


def question_rows(options: AnswerOptions) -> tuple[list[Fields], str]:
    """Return rows with a question and a context, and the format of their file."""
    question = options.question
    context = options.context
    if (question or context) and not (question and context):
        raise ValueError("give both --question and --context, or --input FILE")
    table = input_table(options, [question] if question else [])
    if question:
        return [{"question": question, "context": context}], ""
    if table.format == "squad":
        return squad_rows(table), table.format
    return rows_of(table), table.format


def squad_rows(table: "Table") -> list[Fields]:
    """Return the questions of a SQuAD file; an answer that is not in its context is ignored."""
    from ..data.reading.formats.squad import read_questions, squad_row
    from ..recipe.data.formats import BadRow

    fields = []
    for path in table.source.paths:
        for question in read_questions(path, max_bad_rows=table.max_bad_rows):
            row = squad_row(question)
            if isinstance(row, BadRow):
                row = squad_row(question._replace(answers=()))
            assert not isinstance(row, BadRow)
            fields.append(row.fields)
    return fields


def questions_of_rows(options: AnswerOptions, rows: list[Fields]) -> Inputs:
    """Return the question and the context of each row."""
    if options.columns and len(options.columns) != 2:
        raise ValueError("--columns: give two columns, QUESTION CONTEXT")
    question, context = options.columns or ("question", "context")
    for row in rows:
        texts = [row.get(question), row.get(context)]
        if not all(isinstance(text, str) and text.strip() for text in texts):
            raise ValueError(
                f"give a question and a context; {str(row)[:80]} lacks one of them "
                f"(columns {question!r} and {context!r})"
            )
    pairs = [(row[question], row[context]) for row in rows]
    return Inputs(rows, pairs, [row[question] for row in rows])
