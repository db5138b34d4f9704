"""Sources of data: files, and the formats by which they are divided into pieces of work and
read."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

from ...support.registry import Named, choice, names, register_named
from ...support.synonyms import suggest
from ...support.values import Fraction, NonNegativeInt
from .filters import Filter

Fields = dict[str, Any]  # the cells of a row by column

SUFFIX_SCORE = 0.5  # of `Format.sniff` for a file that has one of the format's suffixes


class SourceRow(NamedTuple):
    """A row of a source, and where it starts in its file."""

    offset: int  # in the format's `offset_unit`
    fields: Fields
    continues: bool = False  # the document continues in the next row
    path: str | None = None  # its file or that of its image, where a piece has several


class BadRow(NamedTuple):
    """A row that cannot be read, and why."""

    offset: int
    reason: str
    path: str | None = None


SourceItem = SourceRow | BadRow
Span = tuple[int, int | None]  # first, and one after the last; None: the end of the file


class Piece(NamedTuple):
    """Work for one process: files, and the span of each in bytes of the unpacked file or in rows,
    as the format counts."""

    paths: tuple[str, ...]
    spans: tuple[Span, ...]
    size: int  # bytes to read, about
    identity: str  # what the files hold


class Format(Named):
    """Base of every data format. One instance is registered under its `name`, which is what
    `Source.format` holds.

    A piece must give the same rows wherever it is read: pieces are read in other processes and on
    other machines.

    Attributes:
        name: the name in recipes and after `--format`.
        suffixes: suffixes of file names, lower case and with the dot; `.gz` and `.zst` are removed
            before they are compared.
        offset_unit: what the offset of a row counts: bytes of the unpacked file, rows, or nothing,
            as each file is a row.
        extra_columns: columns beside those of the files, which a row has where they are among
            `columns` of `read`."""

    name: str
    suffixes: tuple[str, ...] = ()
    offset_unit: Literal["byte", "row", "file"] = "byte"
    extra_columns: tuple[str, ...] = ()

    def has_suffix(self, path: str) -> bool:
        """Return whether the name of a file ends with one of the format's suffixes."""
        return path.removesuffix(".gz").removesuffix(".zst").lower().endswith(self.suffixes)

    def sniff(self, head: bytes, path: str) -> float:
        """Return how sure it is that a file has this format, from 0 (it has not) to 1; the surest
        format is taken.

        Args:
            head: the first bytes of the unpacked file, up to a megabyte. A score of 1 for no bytes
                is final: the file is then not opened.
            path: the name of the file."""
        return SUFFIX_SCORE if self.has_suffix(path) else 0.0

    def complete(self, source: "Source") -> "Source":
        """Return the source with the options that its files imply, such as a delimiter."""
        return source

    def detect_columns(
        self,
        source: "Source",
        expected: Sequence[str] = (),
        reference: "Source | None" = None,
        assume_header: bool = False,
    ) -> "Source":
        """Return the source with `column_names` and `has_header`, where the files do not name their
        columns."""
        return source

    def class_names(
        self, source: "Source", pieces: list[Piece], column: str
    ) -> Sequence[str] | None:
        """Return the names of the classes in a column where they are known without reading the
        rows, else None."""
        return None

    def pieces(self, source: "Source", piece_bytes: int) -> list[Piece]:
        """Divide a source into pieces of about `piece_bytes` bytes, in the order of the files: a
        pure function of them."""
        raise NotImplementedError

    def read(
        self, piece: Piece, source: "Source", columns: tuple[str, ...] = ()
    ) -> Iterator[SourceItem]:
        """Yield the rows of a piece in the order of the files, each bad one in its place.

        Args:
            piece: one of `pieces`.
            source: its source, with the options that say how to read.
            columns: the columns that are needed; none: all. A row may hold more.
        """
        raise NotImplementedError


@choice
class Source:
    """Files to read: local or any fsspec address, globs allowed; `.gz` and `.zst` are decompressed.

    A relative path is looked up here, then under $WEFT_DATA. `filters` drop rows when the data is
    prepared, in their order: put those that look at one row before those that compare rows.

    Attributes:
        paths: the files.
        format: one of `registry.names(Format)`; None: from the row and the file.
        document_boundary: where a document of plain text ends.
        column_names: the names of the columns where the files have none.
        has_header: whether the first line of a csv or tsv names the columns.
        delimiter: of a csv; None: detected from its first lines.
        fraction: read only this part of each file.
        split_seed: `fraction` picks rows of a table at random, by this seed; None: consecutive
            rows.
        filters: what drops rows."""

    paths: tuple[str, ...]
    format: str | None = None
    document_boundary: Literal["file", "line", "blank", "heading"] = "blank"
    column_names: tuple[str, ...] = ()
    has_header: bool = True
    delimiter: Literal[",", ";", "|", "\t"] | None = None
    fraction: tuple[Fraction, Fraction] = (0.0, 1.0)
    split_seed: NonNegativeInt | None = None
    filters: tuple[Filter, ...] = ()

    def __post_init__(self) -> None:
        if self.format is not None and self.format not in names(Format):
            raise ValueError(
                f"Source.format = {self.format!r}; {suggest(self.format, names(Format))}"
            )


for _name, _place in {
    "text": "text:TEXT",
    "parallel": "parallel:PARALLEL",
    "jsonl": "jsonl:JSONL",
    "json": "json_array:JSON",
    "csv": "delimited:CSV",
    "tsv": "delimited:TSV",
    "parquet": "parquet:PARQUET",
    "hub": "hub:HUB",
    "conll": "conll:CONLL",
    "squad": "squad:SQUAD",
    "folder": "image_folder:FOLDER",
    "idx": "idx:IDX",
    "npz": "npz:NPZ",
    "coco": "coco:COCO",
    "image_table": "image_table:IMAGE_TABLE",
}.items():
    register_named(Format, _name, f"weft.data.reading.formats.{_place}")
