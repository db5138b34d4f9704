"""What `weft classify`, `tag`, `answer`, `embed` and `fill` read: texts, pairs of texts, words, questions or images."""

import argparse
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from . import Fields
from .rows import TABLE_SUFFIXES, image_rows, input_rows

if TYPE_CHECKING:
    from ..inference.open_model import OpenModel


def input_texts(
    args: argparse.Namespace, suffixes: tuple[str, ...] = TABLE_SUFFIXES
) -> list[Fields]:
    """Return single texts, or pairs of texts."""
    rows = input_rows(args, args.texts, suffixes)
    if not args.texts or not getattr(args, "pairs", False):
        return rows
    if len(args.texts) % 2:
        raise ValueError(f"--pairs needs an even number of texts; there are {len(args.texts)}")
    return [{"text": a, "text2": b} for a, b in zip(args.texts[::2], args.texts[1::2], strict=True)]


class Inputs(NamedTuple):
    """What a model is asked about."""

    rows: list[Fields]
    inputs: list[tuple[Any, str | None]]  # texts, pairs of texts, or images
    names: list[str]  # of the inputs on the screen


def rows_and_inputs(args: argparse.Namespace, rows: list[Fields], model: "OpenModel") -> Inputs:
    if model.reads_images:
        image_column = getattr(model.recipe and model.recipe.data.rows, "image", None)
        rows, images = image_rows(args, rows, image_column)
        return Inputs(rows, [(image, None) for image in images], [str(row["file"]) for row in rows])
    pairs = text_pairs(args, rows, model)
    return Inputs(
        rows, pairs, ["  |  ".join(text for text in pair if text is not None) for pair in pairs]
    )


def text_pairs(
    args: argparse.Namespace, rows: list[Fields], model: "OpenModel"
) -> list[tuple[str, str | None]]:
    from ..data.reading.columns import text_columns

    first, second = text_columns(rows, args.columns or trained_on(args, rows[0], model))
    if not hasattr(args, "pairs"):
        second = None
    elif args.pairs and second is None:
        raise ValueError(
            f"--pairs: which column is the second text? There are {', '.join(map(repr, rows[0]))}; name both with --columns"
        )
    if not args.texts and not args.columns and list(rows[0]) != ["text"]:
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


def trained_on(args: argparse.Namespace, fields: Fields, model: "OpenModel") -> list[str]:
    """Return the columns that the run was trained on, if the rows have them."""
    from ..recipe import LabelledTexts, TemplatedPairs

    row = None if args.texts or model.recipe is None else model.recipe.data.rows
    if isinstance(row, TemplatedPairs):
        return list(row.template_columns) if set(row.template_columns) <= set(fields) else []
    if not isinstance(row, LabelledTexts) or (
        row.second_text is None and getattr(args, "pairs", False)
    ):
        return []
    columns = [row.text, *([row.second_text] if row.second_text else [])]
    return columns if set(columns) <= set(fields) else []


def words_of(args: argparse.Namespace, rows: list[Fields], model: "OpenModel") -> list[list[str]]:
    """Return the words of a row: as stored, or its text split into words and punctuation."""
    from ..data.reading.column_names import WORD_COLUMNS, find_column
    from ..metrics.moses import tokenize

    column = args.columns[0] if args.columns else find_column(rows[0], WORD_COLUMNS)
    if column is not None and isinstance(rows[0].get(column), list):
        wrong = next(
            (i for i, row in enumerate(rows, 1) if not isinstance(row.get(column), list)), None
        )
        if wrong is not None:
            raise ValueError(f"row {wrong} has no list of words in {column!r}, as the first has")
        return [[str(word) for word in row[column]] for row in rows]
    return [
        text.split() if args.pre_split else tokenize(text, args.language)
        for text, _ in text_pairs(args, rows, model)
    ]


def questions(args: argparse.Namespace) -> tuple[list[Fields], bool]:
    """Return rows with a question and a context, and whether they come from a SQuAD file."""
    if args.question or args.context:
        if args.file or not (args.question and args.context):
            raise ValueError("give --question and --context, or --input")
        return [{"question": args.question, "context": args.context}], False
    if args.file and is_squad(args.file):
        from ..data.formats.squad import read_questions

        return [
            {"id": row.id, "question": row.question, "context": row.context}
            for row in read_questions(args.file)
        ], True
    return input_rows(args, []), False


def is_squad(path: str) -> bool:
    from ..data.formats.sniff import detect_format, formats_by_suffix

    return "squad" in [f.name for f in formats_by_suffix(path)] and detect_format(path) == "squad"


def columns_of(args: argparse.Namespace) -> tuple[str, str]:
    if args.columns and len(args.columns) != 2:
        raise ValueError("--columns: answer reads two, QUESTION CONTEXT")
    question, context = args.columns or ("question", "context")
    return question, context
