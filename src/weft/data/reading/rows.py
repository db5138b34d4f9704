"""Rows of files in memory: one reader and one rule for bad rows, for fine-tuning, evaluation and inference."""

import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from ... import recipe as R
from ...recipe.formats import BadRow, SourceItem, SourceRow
from ..files import find, refuse_endless
from ..formats.jsonl import parse_json_lines
from ..formats.lines import decoded_lines, refuse_binary
from ..formats.sniff import detect_format, formats_by_suffix
from ..quarantine import ImageSize, bad_row_entry, bad_rows_line, check_bad_row_limit, check_row
from ..source import ReadPiece, format_of, read_piece, split_source

Fields = dict[str, Any]
BadRowEntries = list[dict[str, Any]]
Say = Callable[[str], None]
FEW = 5  # lines that tell JSON from text


def load_source(
    source: R.Source,
    columns: tuple[str, ...] = (),
    read: ReadPiece | None = None,
    max_rows: int | None = None,
) -> tuple[list[SourceRow], BadRowEntries]:
    """Return all rows, those that `read` keeps, or the first `max_rows`, and those that cannot be read."""
    items = (
        (item, piece.paths[0])
        for n, piece in enumerate(split_source(source))
        for item in (read(n, piece, columns) if read else read_piece(source, piece, columns))
    )
    return split_bad_rows(islice(items, max_rows), source.format)


def sample_rows(
    source: R.Source, count: int, max_bad_rows: float
) -> tuple[list[SourceRow], BadRowEntries]:
    """Return the first rows and those among them that cannot be read.

    Raises:
        ValueError: if none can be read, or if a larger fraction than `max_bad_rows` cannot.
    """
    rows, bad = load_source(source, max_rows=count)
    check_bad_row_limit(len(rows), bad, max_bad_rows)
    if not rows:
        raise ValueError(f"{', '.join(source.paths)}: there is no row that can be read")
    return rows, bad


def split_bad_rows(
    items: Iterable[tuple[SourceItem, str]], format: str | None
) -> tuple[list[SourceRow], BadRowEntries]:
    rows, bad = list[SourceRow](), BadRowEntries()
    for item, path in items:
        if isinstance(item, BadRow):
            bad.append(bad_row_entry(item, item, path, format))
        else:
            rows.append(item if item.path else item._replace(path=path))
    return rows, bad


def check_rows(
    rows: Sequence[SourceRow],
    row: R.RowSchema,
    labels: Sequence[str] | None,
    format: str | None,
    image_size: ImageSize | None = None,
) -> tuple[list[SourceRow], BadRowEntries]:
    """Return the rows that a task can use, and the others; `image_size` as for `check_row`."""
    wrong = [check_row(row, fields, tuple(labels or ()), image_size) for fields in rows]
    good = [row for row, bad in zip(rows, wrong, strict=True) if bad is None]
    return good, [
        bad_row_entry(bad, row, row.path or "", format)
        for row, bad in zip(rows, wrong, strict=True)
        if bad is not None
    ]


def report_bad_rows(rows: int, bad: BadRowEntries, share: float, report: Say) -> None:
    """Raise ValueError if more than `share` of the rows are bad; else report the skipped ones."""
    bad.sort(key=lambda entry: (entry["file"], entry["offset"]))
    check_bad_row_limit(rows, bad, share)
    if bad:
        report(bad_rows_line(rows, bad))


# Tables


def training_source(data: R.Data, source: R.Source) -> R.Source:
    """Return a source of a run's training data. Columns named by numbers belong to a table without a header, even if it was split
    into other files."""
    return (
        replace(source, has_header=False, column_names=())
        if getattr(data.rows, "text", "").isdecimal()
        else source
    )


# Inputs of inference


def read_rows(
    path: str,
    names: Sequence[str] = (),
    reference: R.Source | None = None,
    share: float = 0.0,
    report: Say = print,
    whole: bool = False,
) -> list[Fields]:
    """Return the rows of a file; ValueError if more than `share` of them cannot be read."""
    rows, bad = items_of(path, names, reference, whole)
    report_bad_rows(len(rows), bad, share, report)
    return [item.fields for item in rows]


def items_of(
    path: str, names: Sequence[str] = (), reference: R.Source | None = None, whole: bool = False
) -> tuple[list[SourceRow], BadRowEntries]:
    """Return all rows of a file: JSON lines or an array, CSV, TSV, Parquet, CoNLL, or text with one row per line. `-` is standard
    input: JSON lines or text, with `whole` as one text."""
    if path == "-":
        text = sys.stdin.read().removeprefix("\ufeff")
        items = rows_from_lines(
            split_lines(text),
            [SourceRow(0, {"text": text.removesuffix("\n")})] if whole and text else None,
        )
        return split_bad_rows(((item, "standard input") for item in items), "json")
    if formats_by_suffix(path):
        source = R.Source(paths=(path,), format=detect_format(path), column_names=tuple(names))
        return load_source(
            format_of(source).detect_columns(source, (), reference, assume_header=True)
        )
    where = find(path)[0]
    if os.path.isdir(where):
        raise ValueError(f"{path} is a folder; give a file")
    refuse_endless(where)
    if os.path.isfile(where):  # a pipe is read once
        refuse_binary(where)
    return split_bad_rows(
        ((item, where) for item in rows_from_lines(decoded_lines(where, (0, None)))), "text"
    )


def split_lines(text: str) -> list[tuple[int, str | BadRow]]:
    """Split at line ends alone: `str.splitlines` also splits at form feeds and Unicode separators, which occur inside texts."""
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    return list(enumerate(lines[:-1] if not lines[-1] else lines))


def rows_from_lines(
    lines: Iterable[tuple[int, str | BadRow]], default: list[SourceItem] | None = None
) -> list[SourceItem]:
    """Return JSON rows if one of the first lines is an object; else one text per line, or `default`."""
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
