"""Inputs for a trained model: a table, one text per line, or standard input."""

import json
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice

from ... import recipe as R
from ...recipe.data.formats import SUFFIX_SCORE, BadRow, Fields, SourceItem, SourceRow
from ...support.addresses import is_remote
from .column_names import is_common_column_name
from .files import find, refuse_special
from .formats.delimited import most_consistent_delimiter
from .formats.jsonl import parse_json_lines
from .formats.lines import decoded_lines, full_lines, read_head, refuse_binary
from .formats.sniff import UnknownFormat, formats_by_suffix, surest_format
from .rows import split_bad_rows
from .source import format_for
from .table import Table, open_table

STANDARD_INPUT = "standard input"
COMMAND_LINE = "the command line"
FEW = 5  # lines by which JSON is distinguished from text


def training_source(data: R.Data) -> R.Source:
    """Return the source of a run's training data. Columns named by numbers belong to a table
    without a header, even if it was split into other files.
    """
    source = next(data.parts("train")).source
    if not any(map(is_remote, source.paths)):
        # A run may outlive its data
        with suppress(ValueError):
            source = replace(source, format=source.format or format_for(source, data.rows))
    if getattr(data.rows, "text", "").isdecimal():
        return replace(source, has_header=False, column_names=())
    return source


def open_input(
    path: str,
    columns: Sequence[str] = (),
    column_names: Sequence[str] = (),
    *,
    reference: R.Source | None = None,
    max_bad_rows: float = 0.0,
    whole: bool = False,
) -> Table:
    """Open the input of a trained model: a table, else JSON lines, or one text per line in the
    column `text`.

    Args:
        path: a file or an address; "-" is standard input, with JSON lines or texts.
        columns: the columns to read (default: inferred).
        column_names: the names of the columns if the file has none.
        reference: the training source of the model.
        max_bad_rows: the largest fraction of bad rows.
        whole: whether standard input is one text.
    """
    if path != "-" and is_table(path):
        return open_table(
            [path],
            columns,
            column_names,
            reference=reference,
            assume_header=True,
            max_bad_rows=max_bad_rows,
        )
    if path == "-":
        text = sys.stdin.read().removeprefix("\ufeff")
        one: list[SourceItem] = [SourceRow(0, {"text": text.removesuffix("\n")})]
        where = STANDARD_INPUT
        format = "json"
        items = rows_from_lines(split_lines(text), one if whole and text else None)
    else:
        where = find(path)[0]
        format = "text"
        items = rows_from_lines(decoded_lines(where, (0, None)))
    read = split_bad_rows(((item, where) for item in items), format)
    return Table(R.Source(paths=(where,), format=format), columns, None, max_bad_rows, items=read)


def table_of_rows(
    fields: Iterable[Fields], path: str, format: str, max_bad_rows: float = 0.0
) -> Table:
    """Return in-memory rows as a table; `path` describes their origin."""
    rows = [SourceRow(i, one, path=path) for i, one in enumerate(fields)]
    source = R.Source(paths=(path,), format=format)
    return Table(source, max_bad_rows=max_bad_rows, items=(rows, []))


def is_table(path: str) -> bool:
    """Return whether a file is a table: by its name; else by a signature of its format, or by a
    first line of common names of columns. Other files hold one text per line, whatever delimiters
    the texts have."""
    if formats_by_suffix(path):
        return True
    where = find(path)[0]
    refuse_special(where)
    head = read_head(where)
    try:
        format = surest_format(head, path)
    except UnknownFormat:
        refuse_binary(where)
        return False
    if format.name in ("csv", "tsv"):
        return has_common_header(full_lines(head))
    # JSON lines are recognised line by line
    return format.name != "jsonl" and format.sniff(head, path) > SUFFIX_SCORE


def has_common_header(lines: Sequence[str]) -> bool:
    delimiter = most_consistent_delimiter(lines, named=False)
    cells = lines[0].split(delimiter) if delimiter else []
    return len(cells) > 1 and all(is_common_column_name(cell.strip(' "')) for cell in cells)


def split_lines(text: str) -> list[tuple[int, str | BadRow]]:
    """Split only at line ends: `str.splitlines` also splits at form feeds and Unicode separators,
    which occur inside texts.
    """
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    return list(enumerate(lines[:-1] if not lines[-1] else lines))


def rows_from_lines(
    lines: Iterable[tuple[int, str | BadRow]], default: list[SourceItem] | None = None
) -> list[SourceItem]:
    """Return JSON rows if one of the first lines is an object; else one text per line, or
    `default`."""
    lines = list(lines)
    if any(
        map(
            is_object,
            islice((line for _, line in lines if isinstance(line, str) and line.strip()), FEW),
        )
    ):
        return list(parse_json_lines(lines))
    return default or [
        line if isinstance(line, BadRow) else SourceRow(offset, {"text": line})
        for offset, line in lines
    ]


def is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False
