"""Rows of files in memory, with one rule for bad rows in fine-tuning, evaluation and inference."""

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any

from ... import recipe as R
from ...recipe.data.formats import BadRow, SourceItem, SourceRow
from ...support.console import Report
from .quarantine import ImageSize, bad_row_entry, bad_rows_line, check_bad_row_limit, check_row
from .source import ReadPiece, read_piece, split_source

BadRowEntries = list[dict[str, Any]]


def load_source(
    source: R.Source,
    columns: tuple[str, ...] = (),
    read: ReadPiece | None = None,
    max_rows: int | None = None,
) -> tuple[list[SourceRow], BadRowEntries]:
    """Return all rows, the rows that `read` keeps, or the first `max_rows`, and the unreadable
    ones.
    """
    items = (
        (item, piece.paths[0])
        for n, piece in enumerate(split_source(source))
        for item in (read(n, piece, columns) if read else read_piece(source, piece, columns))
    )
    return split_bad_rows(islice(items, max_rows), source.format)


def split_bad_rows(
    items: Iterable[tuple[SourceItem, str]], format: str | None
) -> tuple[list[SourceRow], BadRowEntries]:
    rows = list[SourceRow]()
    bad = BadRowEntries()
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
    """Return the usable rows and the others; `image_size` as for `check_row`."""
    known = tuple(labels or ())
    return set_aside(rows, lambda item: check_row(row, item, known, image_size), format)


def set_aside(
    rows: Sequence[SourceRow],
    check: Callable[[SourceRow], BadRow | None],
    format: str | None,
) -> tuple[list[SourceRow], BadRowEntries]:
    """Return the rows that `check` accepts, and the others."""
    good = list[SourceRow]()
    bad = BadRowEntries()
    for item in rows:
        wrong = check(item)
        if wrong is None:
            good.append(item)
        else:
            bad.append(bad_row_entry(wrong, item, item.path or "", format))
    return good, bad


def entry_position(entry: dict[str, Any]) -> tuple[str, int]:
    """Return the position of a bad row, for sorting."""
    return entry["file"], entry["offset"]


def report_bad_rows(rows: int, bad: BadRowEntries, share: float, report: Report) -> None:
    """Raise ValueError if more than `share` of the rows are bad; else report the skipped ones."""
    bad.sort(key=entry_position)
    check_bad_row_limit(rows, bad, share)
    if bad:
        report(bad_rows_line(rows, bad))
