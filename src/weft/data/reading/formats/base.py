"""Base of file formats: pieces of similar size that are read independently."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, groupby, islice
from typing import Any

from ....recipe import Source
from ....recipe.data.formats import BadRow, Format, Piece, SourceItem, SourceRow, Span
from ....support.addresses import is_remote
from ....support.storage import digest_plain
from ..files import (
    BLOCK,
    cached_value,
    expand,
    file_identity,
    file_size,
    is_compressed,
    unpacking_error,
)

ROWS_PER_READ = 1 << 10  # read together
WHOLE = (0.0, 1.0)  # a `Source.fraction` that is all
ENDLESS = 1 << 62  # bytes of a piece that is never divided
# Of a source: beyond a terabyte they become larger, so that an index stays small
MAX_PIECES = 1 << 16


def stretch(count: int, fraction: tuple[float, float]) -> tuple[int, int]:
    """Return the range of rows of a fraction: the first, and the one after the last."""
    return int(count * fraction[0]), int(count * fraction[1])


def row_spans(rows: tuple[int, int], row_bytes: int, piece_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of rows of about `piece_bytes` bytes each."""
    begin, end = rows
    step = max(1, piece_bytes // row_bytes)
    for first in range(begin, end, step):
        yield first, min(first + step, end)


def unnest_translation(fields: dict[str, Any]) -> dict[str, Any]:
    """Return a row with one column per language where it nests them, as data sets of the hub do:
    {"translation": {"en": …, "de": …}}."""
    languages = fields.get("translation")
    if not isinstance(languages, dict):
        return fields
    return {name: cell for name, cell in fields.items() if name != "translation"} | languages


class FileFormat(Format):
    """A format whose files are read one by one. Small files are read together in one piece, a large
    one in several."""

    def spans(self, path: str, source: Source, piece_bytes: int) -> list[tuple[Span, int]]:
        """Divide a file into spans, in order and without gaps, with the bytes to read for each.
        Here: the whole file."""
        return [((0, None), estimated_bytes(path))]

    def rows(
        self, path: str, span: Span, source: Source, columns: tuple[str, ...]
    ) -> Iterator[SourceItem]:
        """Yield the rows of one of the `spans` of a file, each bad one in its place."""
        raise NotImplementedError

    def pieces(self, source: Source, piece_bytes: int) -> list[Piece]:
        pieces: list[list[Piece]] = []
        paths = expand(source.paths)
        piece_bytes = max(piece_bytes, sum(map(estimated_bytes, paths)) // MAX_PIECES)
        for path in paths:
            if os.path.isdir(path):
                raise ValueError(f"{path} is a directory; give its files, such as {path}/*.txt")
            identity = file_identity(path)
            spans = self.spans(path, source, piece_bytes)
            pieces.append([Piece((path,), (span,), size, identity) for span, size in spans])
        return merge_small_files(pieces, piece_bytes)

    def first_rows(self, source: Source, count: int) -> list[SourceRow]:
        """Return the rows among the first `count` items of a source."""
        piece = self.pieces(source, ENDLESS)[0]
        items = islice(self.read(piece, source), count)
        return [item for item in items if isinstance(item, SourceRow)]

    def read(
        self, piece: Piece, source: Source, columns: tuple[str, ...] = ()
    ) -> Iterator[SourceItem]:
        for path, span in zip(piece.paths, piece.spans, strict=True):
            for item in if_undamaged((path,), partial(self.rows, path, span, source, columns)):
                yield item._replace(path=path) if len(piece.paths) > 1 else item


def if_undamaged(
    paths: tuple[str, ...], rows: Callable[[], Iterator[SourceItem]]
) -> Iterator[SourceItem]:
    """Yield the rows of files. No row of a damaged archive can be trusted, since its checksum
    covers all of it: each one is bad."""
    reason = next(filter(None, map(damage, paths)), None)
    if reason is None:
        yield from rows()
        return
    count = 0
    with suppress(ValueError):
        for count, item in enumerate(rows(), 1):  # noqa: B007
            yield BadRow(item.offset, reason)
    if not count:
        yield BadRow(0, reason)


def damage(path: str) -> str | None:
    """Return what is wrong with a compressed local file, if anything; cached."""
    if is_remote(path) or not is_compressed(path):
        return None
    reason: str | None = cached_if_large(
        [path], ["unpacking", file_identity(path)], partial(unpacking_error, path)
    )
    return reason


def merge_small_files(files: list[list[Piece]], piece_bytes: int) -> list[Piece]:
    """Merge small files into pieces of about the usual size; the pieces of a large file stay."""

    def is_small(file_pieces: list[Piece]) -> bool:
        return len(file_pieces) < 2 and sum(piece.size for piece in file_pieces) < piece_bytes

    pieces: list[Piece] = []
    for small, run in groupby(files, is_small):
        flat = list(chain.from_iterable(run))
        if small:
            sizes = [piece.size for piece in flat]
            groups = group_by_size(flat, sizes, piece_bytes)
            pieces += [join_pieces(group) for group, _ in groups]
        else:
            pieces += flat
    return pieces


def join_pieces(group: list[Piece]) -> Piece:
    """Join pieces of one file each into one piece."""
    if len(group) == 1:
        return group[0]
    return Piece(
        tuple(piece.paths[0] for piece in group),
        tuple(piece.spans[0] for piece in group),
        sum(piece.size for piece in group),
        digest_plain([piece.identity for piece in group]),
    )


def cached_if_large(paths: Sequence[str], words: list[Any], find_out: Callable[[], Any]) -> Any:
    """Cache what requires reading whole files, unless they are small."""
    if sum(map(estimated_bytes, paths)) <= BLOCK:
        return find_out()
    return cached_value(["1", [is_compressed(path) for path in paths], *words], find_out)


def estimated_bytes(path: str) -> int:
    """Estimate the bytes to read: text compresses to about a third."""
    return file_size(path) * (3 if is_compressed(path) else 1)


def group_by_size(
    files: list[Any], sizes: list[int], piece_bytes: int
) -> Iterator[tuple[list[Any], int]]:
    """Yield consecutive files, of about `piece_bytes` bytes together, and their size."""
    first = 0
    size = 0
    for i, file_bytes in enumerate(sizes):
        size += file_bytes
        if size >= piece_bytes or i == len(files) - 1:
            yield files[first : i + 1], size
            first = i + 1
            size = 0
