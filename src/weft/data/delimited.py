"""Tables of delimited text: CSV with quotes (RFC 4180), TSV without."""
import csv
from collections import deque
from collections.abc import Iterator
from itertools import islice

from .files import LIMIT
from .lines import Bad, Found, Item, Span, decoded

QUOTES = "a text that holds the delimiter needs quotes"


def first_row(path: str, delimiter: str) -> list[str]:
    rows: Iterator[tuple[int, str | list[str] | Bad]] = decoded(path, (0, None)) if delimiter == "\t" else records(path, delimiter)
    first = next((row for _, row in rows), "")
    if isinstance(first, Bad):
        raise ValueError(f"{path}: its first line should name the columns, but is {first.reason}")
    return first.split("\t") if isinstance(first, str) else first


def unique(path: str, names: list[str]) -> tuple[str, ...]:
    """A header's names, each once."""
    twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if twice:
        raise ValueError(f"{path}: more than one column is named {', '.join(map(repr, twice))}; rename them in the file, or give names for "
                         "all columns with --names (in a recipe, Source.names)")
    return tuple(names)


def shape(path: str, delimiter: str, names: tuple[str, ...], named: bool) -> tuple[tuple[str, ...], int | None]:
    """What the columns are called, and how many a row has, where that is known. `names` overrules a header."""
    if not named:
        return names, len(names) or None
    first = first_row(path, delimiter)
    return names or unique(path, first), len(first)


def tsv(path: str, span: Span, names: tuple[str, ...], named: bool) -> Iterator[Item]:
    """Tabs between columns, no quotes. Without a header (`named`), rows may have more columns than names, as those of STS-B do."""
    columns, width = shape(path, "\t", names, named)
    for offset, line in islice(decoded(path, span), int(named and span[0] == 0), None):
        if isinstance(line, Bad):
            yield line
        elif line.strip():
            yield row_of(offset, line.split("\t"), columns, width if named else None)


def table(path: str, part: tuple[float, float], names: tuple[str, ...], named: bool, delimiter: str) -> Iterator[Item]:
    """A quoted field may hold line ends, so a file is one piece and its parts are counted in rows. Every row is as wide as the header
    or `names`: in a wider one, a delimiter without quotes has cut a field in two."""
    columns, width = shape(path, delimiter, names, named)
    skip = int(named)
    begin, end = 0, None
    if part != (0.0, 1.0):
        count = sum(1 for _ in records(path, delimiter)) - skip
        begin, end = int(count * part[0]), int(count * part[1]) + skip
    for offset, row in islice(records(path, delimiter), begin + skip, end):
        if isinstance(row, Bad):
            yield row
        elif any(cell.strip() for cell in row):
            yield row_of(offset, row, columns, width)


def records(path: str, delimiter: str) -> Iterator[tuple[int, list[str] | Bad]]:
    """Rows of a table with the place of their first line; bad lines come in their turn. Where quotes are wrong, one line is bad and
    those after it are read again: a quote that never closes would swallow them all."""
    csv.field_size_limit(LIMIT)
    source = decoded(path, (0, None))
    again, taken = deque[tuple[int, str]](), list[tuple[int, str]]()       # lines to read again, and those of the row being read
    bad: list[Bad] = []

    def feed() -> Iterator[str]:
        while True:
            offset, line = again.popleft() if again else next(source, (0, None))
            if line is None:
                return
            if isinstance(line, Bad):
                bad.append(line)
            else:
                taken.append((offset, line))
                yield line + "\n"

    reader = csv.reader(feed(), strict=True, delimiter=delimiter)
    while True:
        taken.clear()
        try:
            row: list[str] | Bad | None = next(reader, None)
        except csv.Error as error:
            row = Bad(taken[0][0], f"bad CSV: {error}")
            again.extendleft(reversed(taken[1:]))
            reader = csv.reader(feed(), strict=True, delimiter=delimiter)
        yield from ((b.offset, b) for b in bad)
        bad.clear()
        if row is None:
            return
        yield taken[0][0], row


def row_of(offset: int, cells: list[str], columns: tuple[str, ...], width: int | None) -> Item:
    """Columns without a name are called 0, 1, …"""
    columns = columns or tuple(map(str, range(len(cells))))
    if len(cells) < len(columns) or len(cells) != (width or len(cells)):
        return Bad(offset, f"{len(cells)} columns instead of {width or len(columns)}" + (
            f"; {QUOTES}" if len(cells) > len(columns) else ""))
    return Found(offset, dict(zip(columns, cells, strict=False)))
