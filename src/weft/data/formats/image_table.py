"""A table that names images, and the folder that holds them."""

import os
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from ...recipe import Source
from ...recipe.formats import BadRow, Format, Piece, SourceItem, SourceRow, Span
from ...storage import digest_plain
from ..files import file_identity, find, local_file_size, read_bounded, size_and_mtime
from .base import WHOLE, group_by_size, stretch
from .image_folder import IMAGE_SUFFIXES
from .sniff import detect_format

SAMPLE_ROWS = 100  # among which one must name an image that is there


class ImageTableFormat(Format):
    """
    `Source.paths` are two: a table, and the folder of its images. The column that names files is found by the files; a row has the image
    under its name and as `image`, and the path as `file`.
    """

    name = "image_table"
    offset_unit = "row"

    def pieces(self, source: Source, piece_bytes: int) -> list[Piece]:
        return table_pieces(source, piece_bytes)

    def read(
        self, piece: Piece, source: Source, columns: tuple[str, ...] = ()
    ) -> Iterator[SourceItem]:
        table, folder = piece.paths
        read = read_table(source_of_table(source, table), folder, size_and_mtime(table))
        wanted = not columns or not {"image", read.column}.isdisjoint(columns)
        return rows_with_images(read, folder, piece.spans[0], wanted)


class NamedImages(NamedTuple):
    """The rows of a table, the column that names images, and what the name of a file has behind a cell."""

    rows: list[SourceItem]
    column: str
    suffix: str

    def file(self, item: SourceItem) -> str:
        """Return the path of a row's image in its folder; "" of a row that names none."""
        name = "" if isinstance(item, BadRow) else name_in(item.fields.get(self.column))
        return name and f"{name}{self.suffix}"


def source_of_table(source: Source, table: str) -> Source:
    from ..source import format_of

    inner = replace(source, paths=(table,), format=detect_format(table), fraction=WHOLE, filters=())
    return format_of(inner).detect_columns(format_of(inner).complete(inner))


@lru_cache(maxsize=2)
def read_table(source: Source, folder: str, version: str) -> NamedImages:
    """Read a table, and find the column that names files of the folder: with their suffix, or without it."""
    from ..source import read_piece, split_source

    rows = [item for piece in split_source(source) for item in read_piece(source, piece)]
    sample = [item.fields for item in rows if isinstance(item, SourceRow)][:SAMPLE_ROWS]
    columns = sample[0] if sample else ()
    pairs = [(column, suffix) for suffix in ("", *IMAGE_SUFFIXES) for column in columns]
    named = {pair: count_files(sample, *pair, folder) for pair in pairs}
    best = max(pairs, key=named.__getitem__, default=None)  # the first of equals
    if best is None or not named[best]:
        boxes = {"images", "annotations"} <= {*columns}
        way_out = (
            "it holds boxes in COCO's layout, which weft new detect reads"
            if boxes
            else "give the folder that the names start from"
        )
        raise ValueError(
            f"{source.paths[0]}: no column of its first rows names a file in {folder}; {way_out}"
        )
    return NamedImages(rows, *best)


def count_files(sample: list[dict[str, Any]], column: str, suffix: str, folder: str) -> int:
    """Return how many files the cells of a column name: the numbers of classes may be names of a few."""
    names = {name_in(fields.get(column)) for fields in sample} - {""}
    return sum(os.path.isfile(os.path.join(folder, f"{name}{suffix}")) for name in names)


def name_in(cell: Any) -> str:
    """Return the name of a file in a cell, which may be an image as the `datasets` library writes it; "" for none."""
    name = cell.get("path") if isinstance(cell, dict) else cell
    return str(name) if isinstance(name, str | int) else ""


def rows_with_images(
    read: NamedImages, folder: str, span: Span, with_images: bool
) -> Iterator[SourceItem]:
    root = Path(folder).resolve()
    for place, item in enumerate(read.rows[slice(*span)], span[0]):
        if isinstance(item, BadRow):
            yield BadRow(place, item.reason)
            continue
        name = read.file(item)
        try:
            file = (root / name).resolve()
            if not name or not file.is_relative_to(root):
                yield BadRow(
                    place, f"{name or 'a row without the name of an image'} is outside {root}"
                )
                continue
            image = dict.fromkeys((read.column, "image"), read_bounded(file)) if with_images else {}
            yield SourceRow(place, item.fields | image | {"file": os.path.join(folder, name)})
        except (ValueError, OSError, RuntimeError) as error:  # RuntimeError: links in a circle
            yield BadRow(place, f"{root / name}: {error}")


def table_pieces(source: Source, piece_bytes: int) -> list[Piece]:
    if len(source.paths) != 2:
        raise ValueError(
            f"image_table has two paths, the table and the folder of its images; give both, not {' '.join(source.paths)} alone"
        )
    (table,), (folder,) = map(find, source.paths)
    inner = source_of_table(source, table)
    read = read_table(inner, folder, size_and_mtime(table))
    begin, end = stretch(len(read.rows), source.fraction)
    files = {i: os.path.join(folder, read.file(read.rows[i])) for i in range(begin, end)}
    word = [file_identity(table), read.column, read.suffix]
    return [
        Piece(
            (table, folder),
            ((group[0], group[-1] + 1),),
            size,
            digest_plain([word, [size_and_mtime(files[i]) for i in group]]),
        )
        for group, size in group_by_size(
            list(files), [local_file_size(file) for file in files.values()], piece_bytes
        )
    ]


IMAGE_TABLE = ImageTableFormat()
