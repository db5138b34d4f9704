"""Tables: format, columns, rows, row schema, classes and bad rows of files."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain
from os import PathLike
from typing import NamedTuple

from ... import recipe as R
from ...recipe.data.cells import class_names, sorted_classes
from ...recipe.data.formats import BadRow, Fields, SourceRow
from .column_names import check_columns_exist
from .columns import ending_columns, typical_first
from .files import find, strip_compression_suffix
from .formats.lines import refuse_binary
from .formats.sniff import UnknownFormat, detect_format
from .formats.text import TextFormat
from .image_columns import SAMPLE_IMAGES, check_column_order, find_image_column
from .quarantine import MAX_BAD_ROWS, ImageSize, bad_rows_line, check_bad_row_limit, check_row
from .rows import BadRowEntries, entry_position, load_source, set_aside
from .source import format_for, format_of, is_table_with_folder, read_piece, split_source

IMAGE_FORMATS = ("folder", "npz", "idx", "image_table")  # whose rows are images
SAMPLE_ROWS = 2000  # of a table that need not be read to its end


class UsableRows(NamedTuple):
    """The usable rows of a task, and the bad ones."""

    rows: list[SourceRow]
    bad: BadRowEntries

    def notes(self, what: str = "") -> tuple[str, ...]:
        """Return a line about the bad rows, if any."""
        return (bad_rows_line(len(self.rows), self.bad, what),) if self.bad else ()


class Table:
    """Inspected files. Rows are read on first access, once.

    Attributes:
        source: the files, with their format, header, delimiter and column names.
        requested: the columns to read, the label last unless `label` names it; (): inferred.
        label: the column of the label; None: the last of `requested`, or inferred.
        max_bad_rows: the largest fraction of bad rows.
        expected: the row schema of a task or model, if any.

    `items` are rows and bad rows that are already read, such as standard input.
    """

    def __init__(
        self,
        source: R.Source,
        requested: Sequence[str] = (),
        label: str | None = None,
        max_bad_rows: float = MAX_BAD_ROWS,
        expected: R.RowSchema | None = None,
        items: tuple[list[SourceRow], BadRowEntries] | None = None,
    ) -> None:
        self.source = source
        self.requested = tuple(requested)
        self.label = label
        self.max_bad_rows = max_bad_rows
        self.expected = expected
        if items is not None:
            self.all_items = items

    @property
    def format(self) -> str:
        """The name of the format."""
        assert self.source.format is not None
        return self.source.format

    @property
    def path(self) -> str:
        """The first path, which names the table in errors."""
        return self.source.paths[0]

    # Rows

    @cached_property
    def all_items(self) -> tuple[list[SourceRow], BadRowEntries]:
        """All rows, and those that cannot be read."""
        return load_source(self.source)

    @property
    def rows(self) -> list[SourceRow]:
        """All rows that can be read."""
        return self.all_items[0]

    @property
    def bad(self) -> BadRowEntries:
        """The rows that cannot be read, with their positions."""
        return self.all_items[1]

    def first_rows(self, count: int) -> UsableRows:
        """Return the first rows and those among them that cannot be read, however many these
        are."""
        if "all_items" in self.__dict__ and len(self.rows) + len(self.bad) <= count:
            return UsableRows(*self.all_items)
        return UsableRows(*load_source(self.source, max_rows=count))

    def sample(self, count: int = SAMPLE_ROWS) -> UsableRows:
        """Return the first rows and those among them that cannot be read.

        Raises:
            ValueError: if none can be read, or if more are bad than may be.
        """
        read = self.first_rows(count)
        check_bad_row_limit(len(read.rows), read.bad, self.max_bad_rows)
        if not read.rows:
            raise ValueError(
                f"{', '.join(self.source.paths)} has no readable row; check the file and its format"
            )
        return read

    def require_rows(self) -> list[Fields]:
        """Return the fields of all rows.

        Raises:
            ValueError: if there is none, or if more rows are bad than may be.
        """
        check_bad_row_limit(len(self.rows), self.bad, self.max_bad_rows)
        if not self.rows:
            paths = ", ".join(self.source.paths)
            raise ValueError(f"{paths} has no row; give a file with rows")
        return [item.fields for item in self.rows]

    def readable(self) -> UsableRows:
        """Return all rows that can be read.

        Raises:
            ValueError: if more rows are bad than may be.
        """
        return self.usable_by(lambda item: None)

    def usable(
        self,
        row: R.RowSchema,
        labels: Sequence[str] | None = None,
        rows: UsableRows | None = None,
        image_size: ImageSize | None = None,
    ) -> UsableRows:
        """Return the rows that fit a row schema, by the one rule for bad rows.

        Args:
            row: the row schema.
            labels: the names of the classes (default: those of the row schema).
            rows: those to check (default: all).
            image_size: checks an image and returns its size (default: after decoding it).

        Raises:
            ValueError: if more rows are bad than may be.
        """
        label_names = tuple(labels or row.labels or ())
        return self.usable_by(
            lambda item: check_row(row, item, label_names, image_size),
            rows or UsableRows(*self.all_items),
        )

    def usable_by(
        self, check: Callable[[SourceRow], BadRow | None], rows: UsableRows | None = None
    ) -> UsableRows:
        """Return the rows of which `check` says nothing, as `usable` does."""
        read = rows or UsableRows(*self.all_items)
        good, wrong = set_aside(read.rows, check, self.format)
        bad = sorted([*read.bad, *wrong], key=entry_position)
        check_bad_row_limit(len(good), bad, self.max_bad_rows)
        return UsableRows(good, bad)

    # Columns

    @cached_property
    def holds_images(self) -> bool:
        """Whether the rows hold images: by the format, or by the cells of the first column that is
        requested, or of any."""
        if self.format in IMAGE_FORMATS:
            return True
        fields = [item.fields for item in self.first_rows(SAMPLE_IMAGES).rows]
        if not fields:
            return False
        try:
            check_columns_exist(fields[0], self.requested)
            if len(self.requested) == 2:
                check_column_order(fields, *self.requested)
        except ValueError as error:
            raise ValueError(f"{self.path}: {error}") from None
        return find_image_column(fields, self.requested[:1] or tuple(fields[0])) is not None

    @cached_property
    def examined(self) -> list[Fields]:
        """The rows that tell what the columns hold: all of them, of documents and images the first
        ones."""
        if "all_items" in self.__dict__:
            return self.require_rows()
        if isinstance(self.expected, R.Documents):
            return [item.fields for item in self.sample().rows]
        if (self.expected is not None and self.expected.image_columns) or self.holds_images:
            return [item.fields for item in self.sample(SAMPLE_IMAGES).rows]
        return self.require_rows()

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return (*typical_first(self.examined)[0], *format_of(self.source).extra_columns)

    @property
    def facts(self) -> R.TableFacts:
        """The properties of the table, by which each task scores it."""
        fields = typical_first(self.examined)[0]
        lists = sum(isinstance(cell, list) for cell in fields.values())
        endings = len(ending_columns(fields))
        return R.TableFacts(self.format, lists, endings, tuple(fields))

    def row_schema(
        self, task: type[R.Task], name: str = "", row: R.RowSchema | None = None
    ) -> R.RowSchema:
        """Return the row schema of a task: the requested columns, else those detected by name and
        content.

        Args:
            task: the task.
            name: one of its names on the command line.
            row: a row schema (default: `expected`, or the task's default).
        """
        row = row or self.expected or self.usual_schema(task)
        return task.infer_rows(self.examined, self.requested, self.label, name, row)

    def usual_schema(self, task: type[R.Task]) -> R.RowSchema:
        """Return the row schema that a task usually reads: if the rows hold images, its schema of
        images."""
        schemas: tuple[type[R.RowSchema], ...] = task.row_schemas
        of_images = (schema() for schema in schemas if schema().image_columns)
        row = next(of_images, None) if len(schemas) > 1 else None
        return row if row is not None and self.holds_images else task.default_rows()

    # Classes

    def labels(self, column: str) -> list[list[str]]:
        """Return the classes of each row; no other column is read."""
        return [
            class_names(item.fields.get(column))
            for piece in split_source(self.source)
            for item in read_piece(self.source, piece, (column,))
            if isinstance(item, SourceRow)
        ]

    def classes(self, column: str, labels: Sequence[Sequence[str]] | None = None) -> list[str]:
        """Return the classes of a column: as the files name them, else those of `labels` (default:
        of the rows), sorted."""
        class_names = format_of(self.source).class_names(
            self.source, split_source(self.source), column
        )
        found = self.labels(column) if labels is None and not class_names else labels or ()
        return list(class_names or sorted_classes(set(chain.from_iterable(found))))

    # Other files

    def part(self, begin: float, end: float) -> "Table":
        """Return a part of the rows of each file, given as fractions."""
        return self.with_source(replace(self.source, fraction=(begin, end)))

    def with_source(self, source: R.Source) -> "Table":
        """Return another source that is read as this table is."""
        return Table(source, self.requested, self.label, self.max_bad_rows, self.expected)

    def open_like(self, paths: Sequence[str]) -> "Table":
        """Return other files with the same columns, such as those to validate on. Columns of text
        tables are renamed by their position where they have other names, since headers of published
        splits differ."""
        if self.format in ("conll", "parallel"):
            return self.with_source(replace(self.source, paths=tuple(paths)))
        names = () if self.source.has_header else self.source.column_names
        other = open_table(
            paths,
            self.requested,
            names,
            self.label,
            expected=self.expected,
            max_bad_rows=self.max_bad_rows,
        )
        if self.format == other.format == "text":
            return self.with_source(replace(self.source, paths=tuple(paths)))
        if {self.format, other.format} <= {"csv", "tsv"} and other.rows:
            names = tuple(other.rows[0].fields)
            if len(names) == len(self.columns) and not {*self.columns} <= {*names}:
                return self.with_source(replace(other.source, column_names=self.columns))
        return other


class Tables(NamedTuple):
    """Training and validation tables.

    Attributes:
        train: the training data.
        valid: the validation data; None: a part of the training data.
        seed: the seed that selects held-out rows.
    """

    train: Table
    valid: Table | None = None
    seed: int = 0

    @property
    def path(self) -> str:
        """The first path, which names the tables in errors."""
        return self.train.path


def open_table(
    paths: str | PathLike[str] | Sequence[str | PathLike[str]],
    columns: str | Sequence[str] = (),
    column_names: Sequence[str] = (),
    label: str | None = None,
    *,
    expected: R.RowSchema | None = None,
    reference: R.Source | None = None,
    assume_header: bool = False,
    max_bad_rows: float = MAX_BAD_ROWS,
) -> Table:
    """Inspect files: their format, header, delimiter and column names.

    Args:
        paths: files, directories, globs or addresses.
        columns: the columns to read, in the order of the row schema, the label last (default:
            inferred).
        column_names: the names of the columns if the files have none.
        label: the column of the label (default: the last of `columns`, or inferred).
        expected: the row schema of a task or model, if any.
        reference: the training source of a model, which these files probably resemble.
        assume_header: whether an ambiguous first line is a header, as in training files.
        max_bad_rows: the largest fraction of bad rows.

    Raises:
        ValueError: if a file is missing or in no known format.
    """
    files = [paths] if isinstance(paths, str | PathLike) else list(paths)
    if not files:
        raise ValueError("paths is empty; give at least one file")
    columns = [columns] if isinstance(columns, str) else list(columns)
    source = R.Source(
        paths=tuple(os.fspath(file) for file in files), column_names=tuple(column_names)
    )
    source = replace(source, format=find_format(source, expected))
    if expected is None and source.format == TextFormat.name:
        expected = R.Documents()
    source = format_of(source).complete(source)
    if reference is not None and reference.format == source.format and not column_names:
        source = like_reference(source, reference)
    requested = [*columns, *([label] if label else [])]
    usual = expected.columns if expected is not None and assume_header else ()
    source = format_of(source).detect_columns(
        source, [*requested, *usual], reference, assume_header
    )
    return Table(source, columns, label, max_bad_rows, expected)


def find_format(source: R.Source, expected: R.RowSchema | None) -> str:
    """Return the name of the format that reads the files."""
    if expected is not None:
        return format_for(source, expected)
    if is_table_with_folder(source.paths):
        return "image_table"
    path = source.paths[0]
    try:
        return detect_format(path)
    except UnknownFormat:
        # Any bytes may be text, so that the name decides
        if not strip_compression_suffix(path).lower().endswith(".txt"):
            raise
        refuse_binary(find(path)[0])
        return TextFormat.name


def like_reference(source: R.Source, reference: R.Source) -> R.Source:
    """Return a source with the boundary of documents and the names of columns of another; without a
    header, names are for tables without one."""
    keeps_names = reference.has_header or reference.format not in ("csv", "tsv")
    return replace(
        source,
        document_boundary=reference.document_boundary,
        column_names=reference.column_names if keeps_names else (),
    )
