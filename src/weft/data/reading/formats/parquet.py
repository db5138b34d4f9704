"""Parquet, divided at its row groups."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ....recipe import Source
from ....recipe.data.formats import BadRow, Piece, SourceItem, SourceRow, Span
from ....support.addresses import filesystem, is_remote
from ..files import file_size, unpacked_limit
from .base import ROWS_PER_READ, FileFormat, stretch, unnest_translation
from .class_labels import ClassNames, name_classes, read_class_names


class ParquetFormat(FileFormat):
    name = "parquet"
    suffixes = (".parquet",)
    offset_unit = "row"

    def sniff(self, head: bytes, path: str) -> float:
        return float(self.has_suffix(path) or head.startswith(b"PAR1"))

    def class_names(self, source: Source, pieces: list[Piece], column: str) -> Sequence[str] | None:
        """The names that all of the files give, in the same order."""
        paths = dict.fromkeys(path for piece in pieces for path in piece.paths)
        names = [names_in_file(path).get(column) for path in paths]
        return names[0] if names and all(of_file == names[0] for of_file in names) else None

    def spans(self, path: str, source: Source, piece_bytes: int) -> list[tuple[Span, int]]:
        return row_group_spans(path, source.fraction, piece_bytes)

    def rows(
        self, path: str, span: Span, source: Source, columns: tuple[str, ...]
    ) -> Iterator[SourceItem]:
        return read_parquet(path, span, columns)


@contextmanager
def open_parquet(path: str) -> Iterator[Any]:
    """ValueError for a file that is not Parquet's, damaged in what says where everything is, or a
    bomb."""
    import pyarrow.parquet as pq

    options = {"memory_map": True} if not is_remote(path) else {}
    system, inner = filesystem(path) if is_remote(path) else (None, path)
    try:
        file = pq.ParquetFile(inner, filesystem=system, **options)
        rows = file.metadata.num_rows
    except Exception as error:  # damaged bytes make Arrow raise errors of every kind
        raise ValueError(
            f"{path} cannot be read as Parquet: {first_line(error)}; download it again"
        ) from None
    if rows > unpacked_limit(path):
        raise ValueError(
            f"{path} claims {rows:,} rows in {file_size(path):,} bytes; if that is right, write "
            "it without dictionaries"
        )
    with file:
        yield file


def names_in_file(path: str) -> ClassNames:
    with open_parquet(path) as file:
        return read_class_names(file.schema_arrow.metadata)


def row_groups(path: str) -> list[tuple[int, int]]:
    """Rows and bytes of each row group."""
    with open_parquet(path) as file:
        groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
        return [(g.num_rows, g.total_byte_size) for g in groups]


def read_parquet(path: str, span: Span, columns: tuple[str, ...]) -> Iterator[SourceItem]:
    begin, end = span
    with open_parquet(path) as file:
        nested = ("translation",) if columns else ()  # may hold some of them
        present_columns = [name for name in columns + nested if name in file.schema_arrow.names]
        names = read_class_names(file.schema_arrow.metadata)
        first = 0
        for group in range(file.metadata.num_row_groups):
            count = file.metadata.row_group(group).num_rows
            if first + count > begin and (end is None or first < end):
                yield from (
                    item
                    for item in group_rows(file, group, first, count, present_columns, names)
                    if begin <= item.offset and (end is None or item.offset < end)
                )
            first += count


def group_rows(
    file: Any, group: int, first: int, count: int, wanted: list[str], names: ClassNames
) -> Iterator[SourceItem]:
    """The rows of a row group. Damaged pages make those that follow unreadable: each of them is a
    bad row."""
    place = first
    try:
        for batch in file.iter_batches(
            ROWS_PER_READ, [group], columns=wanted or None, use_threads=False
        ):
            yield from batch_rows(batch, place, names)
            place += batch.num_rows
        reason = f"row group {group} has fewer rows than the file says"
    except Exception as error:  # of every kind, as above
        reason = first_line(error)
    yield from (BadRow(lost, reason) for lost in range(place, first + count))


def batch_rows(batch: Any, place: int, names: ClassNames) -> Iterator[SourceItem]:
    """Row by row where one of them holds what Python has no value for, such as a time after the
    year 9999."""
    try:
        rows: list[Any] = batch.to_pylist()
    except (ValueError, OverflowError):
        rows = [one_row(batch.slice(i, 1)) for i in range(batch.num_rows)]
    for offset, row in enumerate(rows, place):
        try:
            yield (
                SourceRow(offset, unnest_translation(name_classes(row, names)))
                if isinstance(row, dict)
                else BadRow(offset, row)
            )
        except ValueError as error:  # a number without a name
            yield BadRow(offset, str(error))


def one_row(batch: Any) -> dict[str, Any] | str:
    """Its cells, or why it has none."""
    try:
        one_row: dict[str, Any] = batch.to_pylist()[0]
        return one_row
    except (ValueError, OverflowError) as error:
        return first_line(error)


def first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error).strip() else type(error).__name__


def row_group_spans(
    path: str, fraction: tuple[float, float], piece_bytes: int
) -> list[tuple[Span, int]]:
    """Row groups together, up to about a piece."""
    groups = row_groups(path)
    begin, end = stretch(sum(rows for rows, _ in groups), fraction)
    spans: list[tuple[Span, int]] = []
    place = 0
    first = begin
    group_bytes = 0
    for i, (rows, bytes_) in enumerate(groups):
        place += rows
        group_bytes += bytes_
        stop = min(place, end)
        if stop > first and (group_bytes >= piece_bytes or i == len(groups) - 1 or place >= end):
            spans.append(((first, stop), group_bytes))
            first = stop
            group_bytes = 0
    return spans


PARQUET = ParquetFormat()
