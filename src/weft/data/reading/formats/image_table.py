"""A table that names images, and the folder that holds them."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

from ....recipe import Source
from ....recipe.data.formats import BadRow, Format, Piece, SourceItem, SourceRow
from ..files import file_identity, size_and_mtime
from ..quarantine import image_path
from ..source import format_of, read_piece, split_source
from .base import WHOLE
from .image_folder import IMAGE_SUFFIXES
from .named_images import image_pieces, read_image, table_and_folder
from .sniff import detect_format

SAMPLE_ROWS = 100  # among which one must name an image that is there


class ImageTableFormat(Format):
    """`Source.paths` are two: a table, and the folder of its images. The columns that name files
    are found by the files; in a row they hold the images. A row whose table has no column `image`
    or `file` has its image and its path by these names."""

    name = "image_table"
    offset_unit = "row"
    extra_columns = ("image", "file")

    def class_names(self, source: Source, pieces: list[Piece], column: str) -> Sequence[str] | None:
        inner = source_of_table(source, table_and_folder(source)[0])
        return format_of(inner).class_names(inner, split_source(inner), column)

    def pieces(self, source: Source, piece_bytes: int) -> list[Piece]:
        table, folder = paths = table_and_folder(source)
        named = read_table(source_of_table(source, table), folder, size_and_mtime(table))
        identity = [file_identity(table), *named.suffixes.items()]
        names = [list(named.images_of(item).values()) for item in named.rows]
        return image_pieces(paths, source.fraction, identity, names, piece_bytes)

    def read(
        self, piece: Piece, source: Source, columns: tuple[str, ...] = ()
    ) -> Iterator[SourceItem]:
        table, folder = piece.paths
        named = read_table(source_of_table(source, table), folder, size_and_mtime(table))
        for place, item in enumerate(named.rows[slice(*piece.spans[0])], piece.spans[0][0]):
            try:
                yield row_with_images(item._replace(offset=place), named, folder, columns)
            except ValueError as error:
                yield BadRow(place, str(error))


class NamedImages(NamedTuple):
    """The rows of a table, and the columns that name images, the surest first, each with the suffix
    to append to its cells."""

    rows: list[SourceItem]
    suffixes: dict[str, str]

    def images_of(self, item: SourceItem) -> dict[str, str]:
        """Return the names of a row's images by column, "" for a cell that names none."""
        fields = {} if isinstance(item, BadRow) else item.fields
        return {
            column: file_name(fields.get(column), suffix)
            for column, suffix in self.suffixes.items()
        }


def source_of_table(source: Source, table: str) -> Source:
    inner = replace(source, paths=(table,), format=detect_format(table), fraction=WHOLE, filters=())
    return format_of(inner).detect_columns(format_of(inner).complete(inner))


@lru_cache(maxsize=2)
def read_table(source: Source, folder: str, version: str) -> NamedImages:
    """Read a table, and find the columns that name files of the folder."""
    rows = [item for piece in split_source(source) for item in read_piece(source, piece)]
    sample = [item.fields for item in rows if isinstance(item, SourceRow)][:SAMPLE_ROWS]
    suffixes = find_columns(sample, folder)
    if not suffixes:
        boxes = {"images", "annotations"} <= {*(sample[0] if sample else ())}
        way_out = (
            "it holds boxes in COCO's layout, which weft new detect reads"
            if boxes
            else "give the folder that the names start from"
        )
        raise ValueError(
            f"{source.paths[0]}: no column of its first rows names a file in {folder}; {way_out}"
        )
    return NamedImages(rows, suffixes)


def find_columns(sample: list[dict[str, Any]], folder: str) -> dict[str, str]:
    """Return the columns that name files, each with the suffix to append: those of whole names, and
    those of bare ones that name as many files as any, since the numbers of classes may be names of
    a few."""
    columns = sample[0] if sample else ()
    pairs = [(column, suffix) for suffix in ("", *IMAGE_SUFFIXES) for column in columns]
    files = {pair: count_files(sample, *pair, folder) for pair in pairs}
    most = max(files.values(), default=0)
    named = [pair for pair in pairs if files[pair] and (not pair[1] or files[pair] == most)]
    surest_first = sorted(named, key=files.__getitem__, reverse=True)
    suffixes: dict[str, str] = {}
    for column, suffix in surest_first:
        suffixes.setdefault(column, suffix)
    return suffixes


def count_files(sample: list[dict[str, Any]], column: str, suffix: str, folder: str) -> int:
    names = {file_name(fields.get(column), suffix) for fields in sample} - {""}
    return sum(os.path.isfile(os.path.join(folder, name)) for name in names)


def file_name(cell: Any, suffix: str) -> str:
    """Return the name of a file that a cell names, "" for none."""
    name = str(cell) if isinstance(cell, int) else image_path(cell)
    return f"{name}{suffix}" if name else ""


def row_with_images(
    item: SourceItem, named: NamedImages, folder: str, columns: tuple[str, ...]
) -> SourceItem:
    """Return a row with the bytes of those of its images that are read, known by its file if it is
    one.

    Raises:
        ValueError: if an image cannot be read."""
    if isinstance(item, BadRow):
        return item
    names = named.images_of(item)
    first = next(iter(names))
    alias = {"image": first} if "image" in columns and "image" not in names else {}
    wanted = {*(columns or names), *alias.values()}
    read = [column for column in names if column in wanted]
    empty = next((column for column in read if not names[column]), None)
    if empty is not None:
        raise ValueError(f"empty {empty}, which names the image")
    images = {column: read_image(folder, names[column]) for column in read}
    paths = [os.path.join(folder, names[column]) for column in read]
    extra: dict[str, Any] = {name: images[column] for name, column in alias.items()}
    if "file" in columns and "file" not in item.fields:
        extra["file"] = os.path.join(folder, names[first])
    path = paths[0] if len(paths) == 1 else None
    return SourceRow(item.offset, item.fields | images | extra, path=path)


IMAGE_TABLE = ImageTableFormat()
