"""Delimited text: CSV with quotes (RFC 4180), TSV without."""

import csv
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from ....recipe import Source
from ....recipe.data.cells import is_number
from ....recipe.data.formats import BadRow, SourceItem, SourceRow, Span
from ..column_names import MOST_OF_THEM, is_common_column_name, mostly_numbers
from ..files import MAX_LINE_BYTES, MissingFile, find
from .base import WHOLE, FileFormat, stretch
from .lines import SNIFF_LINES, LineFormat, decoded_lines, full_lines, is_binary, read_head
from .sniff import formats_by_suffix

QUOTES = "a text with the delimiter needs quotes"


class TableFormat(FileFormat):
    """Base of CSV and TSV: the first line may name the columns."""

    def sniff(self, head: bytes, path: str) -> float:
        if is_binary(head):
            return 0.0
        delimiter = most_consistent_delimiter(full_lines(head), bool(formats_by_suffix(path)))
        if delimiter is None:
            return 0.1 if self.has_suffix(path) else 0.0  # a single column
        return 0.3 if (delimiter == "\t") == (self.name == "tsv") else 0.0

    def detect_columns(
        self,
        source: Source,
        expected: Sequence[str] = (),
        reference: Source | None = None,
        assume_header: bool = False,
    ) -> Source:
        """Fill in the names of the columns: `Source.column_names`, the header, those of
        `reference`, a table without a header that a model was trained on, or numbers."""
        source = self.complete(source)
        raw = replace(source, column_names=(), has_header=False, fraction=WHOLE)
        rows = [list(row.fields.values()) for row in self.first_rows(raw, SNIFF_LINES)]
        if not rows:
            return source
        names = source.column_names
        if not names:
            read_first_row(find(source.paths[0])[0], source.delimiter or "\t")
        may_have_header = reference is None or reference.has_header
        assume_header = assume_header and not names and may_have_header
        if looks_like_header(rows[0], rows[1:], [*expected, *names], assume_header):
            return replace(source, has_header=True)
        width = self.width(Counter(map(len, rows)))
        if not names and reference is not None and not reference.has_header:
            names = reference.column_names[:width]
        names = names or tuple(map(str, range(width)))
        return replace(source, column_names=names, has_header=False)

    def width(self, widths: Counter[int]) -> int:
        """Return the number of columns of a table without a header, from those of its rows."""
        return widths.most_common(1)[0][0]


class TSVFormat(TableFormat, LineFormat):
    """Tab-separated columns without quotes. Without a header, rows may have more columns than
    names, as those of STS-B do."""

    name = "tsv"
    suffixes = (".tsv",)

    def width(self, widths: Counter[int]) -> int:
        return min(widths)

    def rows(
        self, path: str, span: Span, source: Source, columns: tuple[str, ...]
    ) -> Iterator[SourceItem]:
        has_header = source.has_header
        names, width = column_layout(path, "\t", source.column_names, has_header)
        skip = 1 if has_header and span[0] == 0 else 0
        for offset, line in islice(decoded_lines(path, span), skip, None):
            if isinstance(line, BadRow):
                yield line
            elif line.strip():
                yield make_row(offset, line.split("\t"), names, width if has_header else None)


class CSVFormat(TableFormat):
    """Comma-separated columns. A quoted field may contain line ends, so that a file is one piece
    and its parts are counted in rows. Every row is as wide as the header or `column_names`: in a
    wider one, a delimiter without quotes has split a field."""

    name = "csv"
    suffixes = (".csv",)

    def complete(self, source: Source) -> Source:
        delimiter: Any = source.delimiter or detect_delimiter(source.paths[0])
        return replace(source, delimiter=delimiter)

    def rows(
        self, path: str, span: Span, source: Source, columns: tuple[str, ...]
    ) -> Iterator[SourceItem]:
        delimiter = source.delimiter or ","
        names, width = column_layout(path, delimiter, source.column_names, source.has_header)
        skip = 1 if source.has_header else 0
        begin = 0
        end = None
        if source.fraction != WHOLE:
            count = sum(1 for _ in csv_records(path, delimiter)) - skip
            begin, end = stretch(count, source.fraction)
            end += skip
        for offset, row in islice(csv_records(path, delimiter), begin + skip, end):
            if isinstance(row, BadRow):
                yield row
            elif any(cell.strip() for cell in row):
                yield make_row(offset, row, names, width)


def read_first_row(path: str, delimiter: str) -> list[str]:
    rows: Iterator[tuple[int, str | list[str] | BadRow]] = (
        decoded_lines(path, (0, None)) if delimiter == "\t" else csv_records(path, delimiter)
    )
    first = next((row for _, row in rows), "")
    if isinstance(first, BadRow):
        raise ValueError(
            f"{path}: its first line should name the columns, but it is {first.reason}; "
            "repair it, or give --column-names"
        )
    return first.split("\t") if isinstance(first, str) else first


def check_unique_names(path: str, names: list[str]) -> tuple[str, ...]:
    """Raise ValueError if a header names a column twice."""
    twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if twice:
        raise ValueError(
            f"{path}: more than one column is named {', '.join(map(repr, twice))}; "
            "rename them in the file, or give names for all columns with --column-names "
            "(in a recipe, Source.column_names)"
        )
    return tuple(names)


def column_layout(
    path: str, delimiter: str, names: tuple[str, ...], named: bool
) -> tuple[tuple[str, ...], int | None]:
    """Return the names of the columns, and how many a row has, where that is known. `column_names`
    override a header."""
    if not named:
        return names, len(names) or None
    first = read_first_row(path, delimiter)
    return names or check_unique_names(path, first), len(first)


# pyarrow.csv is nine times as fast, but it has no offsets of rows, turns 01 into 1, and one open
# quote costs it every row that follows
def csv_records(path: str, delimiter: str) -> Iterator[tuple[int, list[str] | BadRow]]:
    """Yield the rows of a table with the offset of their first line, bad lines in their place. If
    quotes are wrong, one line is bad and those after it are read again: a quote that never closes
    would swallow them all."""
    csv.field_size_limit(MAX_LINE_BYTES)
    lines = decoded_lines(path, (0, None))
    again: deque[tuple[int, str | BadRow]] = deque()  # lines to read again
    record: list[tuple[int, str | BadRow]] = []  # the lines of the row that is being read
    bad: list[tuple[int, BadRow]] = []

    def feed() -> Iterator[str]:
        while numbered := again.popleft() if again else next(lines, None):
            offset, line = numbered
            if isinstance(line, BadRow):
                bad.append((offset, line))
            else:
                record.append(numbered)
                yield line + "\n"

    going = True
    while going:
        going = False
        try:
            for row in csv.reader(feed(), strict=True, delimiter=delimiter):
                yield from bad
                yield record[0][0], row
                bad.clear()
                record.clear()
        except csv.Error as error:
            going = True
            yield from bad
            yield record[0][0], BadRow(record[0][0], f"bad CSV: {error}")
            again.extendleft(reversed(record[1:]))
            bad.clear()
            record.clear()
    yield from bad


def make_row(
    offset: int, cells: list[str], columns: tuple[str, ...], width: int | None
) -> SourceItem:
    """Return a row as a dictionary; columns without a name are called 0, 1, …"""
    columns = columns or tuple(map(str, range(len(cells))))
    if len(cells) >= len(columns) and width in (None, len(cells)):
        return SourceRow(offset, dict(zip(columns, cells, strict=False)))
    reason = f"{len(cells)} columns instead of {max(width or 0, len(columns))}"
    quotes = f"; {QUOTES}" if len(cells) > len(columns) else ""
    return BadRow(offset, reason + quotes)


# The first lines


def detect_delimiter(path: str) -> str:
    """Return the delimiter of a CSV file; a comma if the content does not decide."""
    try:
        return most_consistent_delimiter(full_lines(read_head(find(path)[0])), True) or ","
    except MissingFile:
        return ","


def most_consistent_delimiter(lines: Sequence[str], named: bool) -> str | None:
    """Return the delimiter by which most rows have the same number of columns, at least two; on a
    tie a tab, a comma or a semicolon, in this order."""
    enough = MOST_OF_THEM * len(lines)
    if sum("\t" in line for line in lines) > enough:
        return "\t"
    best = 0.0
    best_delimiter = None
    for delimiter in ",;|":
        if not named and sum(delimiter in line for line in lines) <= enough:
            continue
        consistent = consistent_fraction(lines, delimiter)
        if consistent > best:
            best = consistent
            best_delimiter = delimiter
    return best_delimiter


def consistent_fraction(lines: Sequence[str], delimiter: str) -> float:
    """Return the fraction of rows that have the usual number of columns; 0 where that is one."""
    csv.field_size_limit(MAX_LINE_BYTES)
    ended_lines = (line + "\n" for line in lines)
    try:
        widths = Counter(len(row) for row in csv.reader(ended_lines, delimiter=delimiter) if row)
    except csv.Error:  # a stray carriage return, a field without end
        return 0.0
    width, count = widths.most_common(1)[0] if widths else (0, 0)
    return count / widths.total() if width > 1 else 0.0


def looks_like_header(
    first: Sequence[str],
    rest: Sequence[Sequence[str]],
    expected: Sequence[str] = (),
    assume_header: bool = False,
) -> bool:
    """Return whether the first line names the columns. By the names: all are common ones, or one
    does not occur below. By the types: no number above numbers, short above long texts, a new word
    above few that repeat. Otherwise `assume_header` decides."""
    if set(expected) & set(first) or all(map(is_common_column_name, first)):
        return True
    if any(not cell.strip() or len(cell) > 40 or is_number(cell) for cell in first):
        return False
    columns = [[row[i] for row in rest if len(row) > i] for i in range(len(first))]
    new = [name not in column for name, column in zip(first, columns, strict=True)]
    if any(is_common_column_name(name) and fresh for name, fresh in zip(first, new, strict=True)):
        return True
    if not all(new) or not rest:
        return assume_header and not rest
    numbers = [mostly_numbers(column) for column in columns]
    texts = [
        sum(len(cell.split()) for cell in column) > 3 * len(column) and len(name.split()) <= 3
        for name, column in zip(first, columns, strict=True)
    ]
    repeat = [len(set(column)) <= len(column) / 3 for column in columns]
    return (
        any(numbers)
        or any(texts)
        or any(repeat)
        or (assume_header and not all(" " in cell.strip() for cell in first))
    )


CSV = CSVFormat()
TSV = TSVFormat()
