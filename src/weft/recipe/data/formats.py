"""The `Source` dataclass and the interface and registry of file formats."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

from ...support.registry import Named, choice, names, register_named
from ...support.synonyms import suggest
from ...support.values import Fraction, NonNegativeInt
from .filters import Filter

Fields = dict[str, Any]  # the cells of a row by column

SUFFIX_SCORE = 0.5  # of `Format.sniff` for a file that has one of the format's suffixes


class SourceRow(NamedTuple):
    """A row of a source and its offset in the file."""

    offset: int  # in the format's `offset_unit`
    fields: Fields
    continues: bool = False  # the document continues in the next row
    path: str | None = None  # its file, or that of its image, if a piece has several


class BadRow(NamedTuple):
    """A row that cannot be read, and the reason."""

    offset: int
    reason: str
    path: str | None = None


SourceItem = SourceRow | BadRow
Span = tuple[int, int | None]  # first, and one after the last; None: the end of the file


class Piece(NamedTuple):
    """Files and spans that one process reads; a span counts bytes of the unpacked file or rows."""

    paths: tuple[str, ...]
    spans: tuple[Span, ...]
    size: int  # bytes to read, approximately
    identity: str  # identifies the content of the files


class Format(Named):
    """Base of file formats. One instance is registered under its `name`, the value of
    `Source.format`.

    A piece must give the same rows wherever it is read: pieces are read in other processes and on
    other machines.

    Attributes:
        name: the name in recipes and in `--format`.
        suffixes: suffixes of file names, lower case and with the dot; `.gz` and `.zst` are removed
            before they are compared.
        offset_unit: the unit of row offsets: "byte" of the unpacked file, "row", or "file" if each
            file is one row.
        extra_columns: columns in addition to those of the files, which a row has if `columns` of
            `read` contains them.
    """

    name: str
    suffixes: tuple[str, ...] = ()
    offset_unit: Literal["byte", "row", "file"] = "byte"
    extra_columns: tuple[str, ...] = ()

    def has_suffix(self, path: str) -> bool:
        """Return whether a file name ends with one of the format's suffixes."""
        return path.removesuffix(".gz").removesuffix(".zst").lower().endswith(self.suffixes)

    def sniff(self, head: bytes, path: str) -> float:
        """Return the confidence that a file has this format, from 0 (it has not) to 1. The format
        with the highest confidence is used.

        Args:
            head: the first bytes of the unpacked file, up to a megabyte. A score of 1 for no bytes
                is final: the file is not opened.
            path: the name of the file.
        """
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
        """Return the source with `column_names` and `has_header` for files that do not name their
        columns.
        """
        return source

    def class_names(
        self, source: "Source", pieces: list[Piece], column: str
    ) -> Sequence[str] | None:
        """Return the class names of a column if they are known without reading the rows, else
        None.
        """
        return None

    def pieces(self, source: "Source", piece_bytes: int) -> list[Piece]:
        """Divide a source into pieces of about `piece_bytes` bytes, in the order of the files; the
        result depends on nothing else.
        """
        raise NotImplementedError

    def read(
        self, piece: Piece, source: "Source", columns: tuple[str, ...] = ()
    ) -> Iterator[SourceItem]:
        """Yield the rows of a piece in the order of the files, with bad rows in place.

        Args:
            piece: one of `pieces`.
            source: its source, with the format's options.
            columns: the required columns; empty: all. A row may have more.
        """
        raise NotImplementedError


@choice
class Source:
    """Files to read: local paths or fsspec addresses, with globs; `.gz` and `.zst` are
    decompressed.

    A relative path is resolved here, then under $WEFT_DATA.

    Args:
        paths: the files.
        format: the name of a format (default: detected from rows and files).
        document_boundary: the end of a document in plain text: "file", "line", "blank" line or
            "heading" (default: "blank").
        column_names: the names of the columns if the files have none.
        has_header: whether the first line of a csv or tsv names the columns (default: True).
        delimiter: the delimiter of a csv (default: detected from its first lines).
        fraction: the start and end of the part of each file to read, from 0 to 1 (default: (0, 1)).
        split_seed: the seed with which `fraction` picks rows of a table at random (default:
            consecutive rows).
        filters: filters that drop rows during preparation, in order; put quality filters before
            deduplication (default: none).
    """

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
