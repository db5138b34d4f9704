"""Pieces of work of a `Source`, and the rows of a piece."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from ... import recipe as R
from ...recipe.data.formats import Format, Piece, SourceItem
from ...support.order import random_position
from ...support.registry import named
from ...support.values import to_plain
from .files import MissingFile, find
from .formats.base import WHOLE
from .formats.sniff import detect_format, formats_by_suffix

ReadPiece = Callable[[int, Piece, tuple[str, ...]], Iterator[SourceItem]]  # by the piece's number
PIECE_BYTES = 1 << 24  # of a piece: a shard is made in seconds


def format_of(source: R.Source) -> Format:
    if source.format is None:
        raise ValueError(f"Source.format is None for {source.paths[0]}; give a format")
    format: Format = named(Format, source.format)
    return format


def resolve_source(source: R.Source, row: R.RowSchema) -> R.Source:
    """Return the source with its format and the format's options, inferred from the row schema and
    files if not given.
    """
    source = replace(source, format=source.format or format_for(source, row))
    return format_of(source).complete(source)


def format_for(source: R.Source, row: R.RowSchema) -> str:
    """Return the default format of a row schema, unless the file name implies others."""
    path = source.paths[0] if source.paths else ""
    usual = row.default_format(source.paths)
    likely = [format.name for format in formats_by_suffix(path)]
    if usual and (not likely or usual in likely):
        return usual
    images = isinstance(row, R.LabelledImages) and is_table_with_folder(source.paths)
    return "image_table" if images else detect_format(path)


def is_table_with_folder(paths: Sequence[str]) -> bool:
    """Return whether the paths are two, a file and a folder."""
    with suppress(MissingFile):  # of a run whose data are gone
        return len(paths) == 2 and [os.path.isdir(find(path)[0]) for path in paths] == [False, True]
    return False


def split_source(source: R.Source) -> list[Piece]:
    """Return the pieces of a source, a pure function of its files."""
    if not source.paths:
        raise ValueError("Source.paths is empty; name at least one file")
    if source.fraction[0] >= source.fraction[1]:
        raise ValueError(
            f"Source.fraction = {source.fraction} is empty; give a start and a larger end, such as "
            "(0.0, 0.9)"
        )
    whole = source if source.split_seed is None else replace(source, fraction=WHOLE)
    return format_of(source).pieces(whole, PIECE_BYTES)


def read_piece(
    source: R.Source, piece: Piece, columns: tuple[str, ...] = ()
) -> Iterator[SourceItem]:
    """Yield the rows of a piece in the files' order, with bad ones in place."""
    if source.split_seed is None:
        return format_of(source).read(piece, source, columns)
    items = format_of(source).read(piece, replace(source, fraction=WHOLE), columns)
    return keep_fraction(items, piece, source.fraction, source.split_seed)


def keep_fraction(
    items: Iterator[SourceItem], piece: Piece, fraction: tuple[float, float], seed: int
) -> Iterator[SourceItem]:
    """Yield the rows of a piece whose position in a random order is in a fraction."""
    begin, end = fraction
    for item in items:
        # That of an image is no file of the piece
        path = item.path if item.path in piece.paths else piece.paths[0]
        if begin <= row_position(seed, path, item.offset) < end:
            yield item


def row_position(seed: int, path: str, offset: int) -> float:
    """Return a row's position in a random order, from 0 to 1: a pure function of the seed, its file
    name and its position in the file.
    """
    return random_position(seed, os.path.basename(path), offset)


def reading_settings(source: R.Source) -> Any:
    """Return all settings that determine the rows of a source, without the paths of its files."""
    settings = {name: plain for name, plain in to_plain(source).items() if name != "paths"}
    if not source.filters:  # as written before there were filters
        del settings["filters"]
    if source.split_seed is None:  # as written before there were random splits
        del settings["split_seed"]
    return settings
