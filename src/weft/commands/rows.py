"""Input and output rows of a command."""

import json
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..support.console import count_of, report
from ..support.options.shared import COLUMN_PREFIX, RowOptions
from . import Fields
from .files import check_input_files, check_keeps_inputs, check_output_file, check_outside_model
from .predict_options import TextOptions

if TYPE_CHECKING:
    from ..data.reading.table import Table
    from ..recipe import Source
    from ..recipe.data.formats import BadRow, SourceRow


TABLE_SUFFIXES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet")


class ImageRows(NamedTuple):
    rows: list[Fields]
    images: list[str | bytes]


def add_columns(rows: Sequence[Fields], new_fields: Sequence[Fields]) -> None:
    """Add fields to the rows. Input columns keep their names; a new field with the same name gets a
    prefix in every row."""
    # A table writes an object as NAME.PART
    taken = {name.partition(".")[0] for row in rows for name in row}
    for row, prediction in zip(rows, new_fields, strict=True):
        for name, value in prediction.items():
            row[COLUMN_PREFIX + name if name in taken else name] = value


def write_output_rows(path: str, rows: list[Fields]) -> None:
    """Write the rows; if that fails, print them, so that no prediction is lost."""
    from ..data.reading.write_rows import write_rows

    try:
        write_rows(path, rows)
    except (OSError, ValueError):
        for row in rows:
            print(json.dumps(row, ensure_ascii=False))
        raise


def input_rows(
    options: RowOptions,
    texts: Sequence[str],
    suffixes: tuple[str, ...] = TABLE_SUFFIXES,
    whole: bool = False,
) -> list[Fields]:
    """Return the rows of `input_table`."""
    return rows_of(input_table(options, texts, suffixes, whole))


def rows_of(table: "Table") -> list[Fields]:
    """Return the rows of a table, at least one; report skipped rows."""
    read = table.readable()
    for note in read.notes():
        report(note)
    if not read.rows:
        raise ValueError(f"{table.path} has no rows; give at least one text or image")
    return [item.fields for item in read.rows]


def input_table(
    options: RowOptions,
    texts: Sequence[str],
    suffixes: tuple[str, ...] = TABLE_SUFFIXES,
    whole: bool = False,
) -> "Table":
    """Return the table from the command line, a file, or standard input.

    Args:
        options: the options of the command.
        texts: the texts on the command line.
        suffixes: the suffixes that the output file may have.
        whole: whether standard input is one text.
    """
    from ..data.reading.inputs import COMMAND_LINE, open_input, table_of_rows

    check_output_file(options.output, suffixes)
    check_outside_model("--output", [options.output], options.name)
    if texts and options.input:
        raise ValueError("a text and --input cannot be combined; give one of them")
    check_keeps_inputs("--output", [options.output or ""], [options.input or "", *texts])
    if options.input and options.input != "-":
        check_input_files("--input", [options.input])
    if texts:
        return table_of_rows(({"text": text} for text in texts), COMMAND_LINE, "text")
    if not options.input and sys.stdin.isatty():
        raise ValueError("no input; give a text, --input FILE, or standard input")
    return open_input(
        options.input or "-",
        options.columns,
        options.column_names,
        reference=source_of_run(options.name),
        max_bad_rows=options.max_bad_row_fraction,
        whole=whole and not options.input,
    )


def image_rows(options: TextOptions, rows: list[Fields], trained_on: str | None) -> ImageRows:
    """Return one row per image, without bytes, and the images.

    Images are files and folders on the command line, or file names or bytes in a column of a
    table. The column `file` names the image if the table has no such column.

    Args:
        options: the options of the command.
        rows: the rows of the table.
        trained_on: the image column of the model's training data.

    Raises:
        ValueError: if more rows than allowed have no image. If none is allowed, images are not
            decoded here; the model's reader reports the first bad one.
    """
    from ..data.reading.column_names import check_columns_exist
    from ..data.reading.inputs import COMMAND_LINE, STANDARD_INPUT, table_of_rows
    from ..inference.images import expand_folders

    source = STANDARD_INPUT if options.input in (None, "-") else str(options.input)
    if options.texts:
        source = COMMAND_LINE
        column = "file"
        rows = [{column: file} for file in expand_folders(options.texts)]
        check_keeps_inputs("--output", [options.output or ""], [row[column] for row in rows])
    else:
        column = next(iter(options.columns), None) or image_column(rows, trained_on)
        check_columns_exist(rows[0], [column])

    decode = options.max_bad_row_fraction > 0
    table = table_of_rows(rows, source, "image_table", options.max_bad_row_fraction)
    usable = table.usable_by(lambda item: image_problem(item, column, decode))
    for note in usable.notes():
        report(note)
    names_and_images = [image_in_cell(item.fields.get(column)) for item in usable.rows]
    named = zip(usable.rows, names_and_images, strict=True)
    return ImageRows(
        [named_row(item, name) for item, (name, _) in named],
        [image for _, image in names_and_images if image is not None],
    )


def image_problem(item: "SourceRow", column: str, decode: bool) -> "BadRow | None":
    """Return why a row has no readable image; None if it has one or `decode` is False."""
    from ..inference.images import encoded_image
    from ..recipe.data.formats import BadRow

    _, image = image_in_cell(item.fields.get(column))
    if not image:
        reason = f"{column!r} contains neither an image nor a file name"
        return BadRow(item.offset, f"{reason}; give the column of the images with --columns")
    try:
        if decode:
            encoded_image(image)
    except ValueError as error:
        return BadRow(item.offset, str(error))
    return None


def named_row(item: "SourceRow", name: str | None) -> Fields:
    """Return a row without bytes, with the name of its image in the column `file`."""
    plain = {key: cell for key, cell in item.fields.items() if not contains_bytes(cell)}
    return plain | {"file": plain.get("file") or name or f"row {item.offset + 1}"}


def image_column(rows: list[Fields], trained_on: str | None) -> str:
    """Return the column of the training data if it holds images or file names; else a column that
    holds images, or whose name suggests files or images."""
    from ..data.reading.column_names import IMAGE_COLUMNS, find_column
    from ..data.reading.image_columns import SAMPLE_IMAGES, find_image_column

    trained = trained_on if trained_on in rows[0] else None
    if trained and any(holds_image(row.get(trained)) for row in rows[:SAMPLE_IMAGES]):
        return trained
    return (
        find_image_column(rows, list(rows[0]))
        or trained
        or find_column(rows[0], ("file", *IMAGE_COLUMNS))
        or next(iter(rows[0]))
    )


def holds_image(cell: Any) -> bool:
    """Return whether a cell starts like an encoded image, or names a file."""
    from ..data.reading.image_columns import is_image

    _, image = image_in_cell(cell)
    return os.path.isfile(image) if isinstance(image, str) else is_image(image)


def image_in_cell(cell: Any) -> tuple[str | None, str | bytes | None]:
    """Return the name of an image, and its bytes or file. The `datasets` library stores a path
    with or without bytes."""
    from ..data.reading.quarantine import image_bytes, image_path

    path = image_path(cell)
    with suppress(ValueError):
        return path, image_bytes(cell)
    return path, path


def contains_bytes(cell: Any) -> bool:
    if isinstance(cell, dict | list):
        return any(map(contains_bytes, cell.values() if isinstance(cell, dict) else cell))
    return isinstance(cell, bytes)


def source_of_run(run: str) -> "Source | None":
    """Return the source of a run's training data; None if the name is not a run."""
    if not (Path(run) / "recipe.json").is_file():
        return None
    from ..data.reading.inputs import training_source
    from ..training.checkpoints.compatibility import recipe_of

    return training_source(recipe_of(Path(run), lambda line: None).data)


def report_written(count: int, path: str) -> int:
    report(f"{count_of(count, 'row')} in {path}")
    return 0
