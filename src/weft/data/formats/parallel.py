"""Parallel text: line i of each file belongs together."""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import zip_longest

from ...recipe import Source
from ...recipe.formats import BadRow, Format, Piece, SourceItem, SourceRow, Span
from ...storage import digest_plain
from ..files import file_identity, find, is_compressed, read_blocks
from .base import WHOLE, cached_if_large, estimated_bytes, if_undamaged, stretch
from .lines import decoded_lines, refuse_binary


class ParallelFormat(Format):
    """Files are divided at the same lines. A file cannot be recognised as one of several."""

    name = "parallel"

    def pieces(self, source: Source, piece_bytes: int) -> list[Piece]:
        return parallel_pieces(source, piece_bytes)

    def read(
        self, piece: Piece, source: Source, columns: tuple[str, ...] = ()
    ) -> Iterator[SourceItem]:
        names = source.column_names or ("source", "target")
        return if_undamaged(piece.paths, partial(read_parallel, piece.paths, piece.spans, names))


def read_parallel(
    paths: tuple[str, ...], spans: tuple[Span, ...], names: tuple[str, ...]
) -> Iterator[SourceItem]:
    """Yield line n of each file as one row."""
    for row in zip_longest(
        *(decoded_lines(path, span) for path, span in zip(paths, spans, strict=True))
    ):
        if None in row:
            short = paths[row.index(None)]
            raise ValueError(
                f"{short} has fewer lines than {next(p for p in paths if p != short)}; aligned files must have the same number"
            )
        offset, texts = row[0][0], [text for _, text in row]
        bad = [
            BadRow(offset, f"{text.reason} ({path})")
            for text, path in zip(texts, paths, strict=True)
            if isinstance(text, BadRow)
        ]
        yield bad[0] if bad else SourceRow(offset, dict(zip(names, texts, strict=True)))


def parallel_pieces(source: Source, piece_bytes: int) -> list[Piece]:
    """Divide aligned files at the same lines; each glob must match as many files."""
    if len(source.paths) < 2:
        raise ValueError(
            f"parallel text needs two files or more, and there is only {source.paths[0]}; give the aligned file too"
        )
    columns = [find(path) for path in source.paths]
    if len({len(files) for files in columns}) != 1:
        counts = ", ".join(
            f"{path} are {len(files)}" for path, files in zip(source.paths, columns, strict=True)
        )
        raise ValueError(f"every glob of aligned files must match as many files, but {counts}")
    pieces = []
    for paths in zip(*columns, strict=True):
        for path in paths:
            refuse_binary(path)
        bytes_, word = (
            sum(map(estimated_bytes, paths)),
            digest_plain([file_identity(path) for path in paths]),
        )
        count = 1 if any(map(is_compressed, paths)) else max(1, -(-bytes_ // piece_bytes))
        if count == 1 and source.fraction == WHOLE:
            pieces.append(Piece(paths, ((0, None),) * len(paths), bytes_, word))
            continue
        places = cached_if_large(
            paths,
            ["aligned", word, source.fraction, count],
            partial(aligned_offsets, paths, source.fraction, count),
        )
        pieces += [
            Piece(paths, tuple((p[i], p[i + 1]) for p in places), bytes_ // count, word)
            for i in range(count)
            if places[0][i] < places[0][i + 1]
        ]
    return pieces


def aligned_offsets(
    paths: Sequence[str], fraction: tuple[float, float], count: int
) -> list[list[int]]:
    """Return the offsets in each file at which its `count` pieces start, and the end of the last."""
    totals = {path: count_lines(path) for path in paths}
    if len(set(totals.values())) != 1:
        raise ValueError(
            "aligned files must have the same number of lines, but "
            + ", ".join(f"{p} has {n}" for p, n in totals.items())
        )
    begin, end = stretch(totals[paths[0]], fraction)
    cuts = [begin + (end - begin) * i // count for i in range(count + 1)]
    return [line_offsets(path, cuts) for path in paths]


def count_lines(path: str) -> int:
    count, last = 0, b"\n"
    for block in read_blocks(path):
        count, last = count + block.count(b"\n"), block[-1:]
    return count + (last != b"\n")


def line_offsets(path: str, numbers: list[int]) -> list[int]:
    """Return the offset at which each of these lines starts; the line numbers are sorted."""
    offsets: list[int] = []
    seen, offset = 0, 0  # lines ended, bytes passed
    for block in read_blocks(path):
        ended = block.count(b"\n")
        while len(offsets) < len(numbers) and numbers[len(offsets)] <= seen + ended:
            place = -1
            for _ in range(numbers[len(offsets)] - seen):
                place = block.index(b"\n", place + 1)
            offsets.append(offset + place + 1)
        seen, offset = seen + ended, offset + len(block)
    return offsets + [offset] * (len(numbers) - len(offsets))


PARALLEL = ParallelFormat()
