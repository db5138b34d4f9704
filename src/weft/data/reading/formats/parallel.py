"""Parallel text: line i of each file belongs together."""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise, zip_longest

from ....recipe import Source
from ....recipe.data.formats import BadRow, Format, Piece, SourceItem, SourceRow, Span
from ....support.storage import digest_plain
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
    files = [decoded_lines(path, span) for path, span in zip(paths, spans, strict=True)]
    for lines in zip_longest(*files):
        if None in lines:
            short = paths[lines.index(None)]
            longer = next(path for path in paths if path != short)
            raise ValueError(
                f"{short} has fewer lines than {longer}; aligned files must have the same number"
            )
        offset = lines[0][0]
        texts = [text for _, text in lines]
        wrong = [
            f"{text.reason} ({path})"
            for path, text in zip(paths, texts, strict=True)
            if isinstance(text, BadRow)
        ]
        if wrong:
            yield BadRow(offset, wrong[0])
        else:
            yield SourceRow(offset, dict(zip(names, texts, strict=True)))


def parallel_pieces(source: Source, piece_bytes: int) -> list[Piece]:
    """Divide aligned files at the same lines; each glob must match as many files."""
    if len(source.paths) < 2:
        raise ValueError(
            f"parallel text needs at least two files, not only {source.paths[0]}; give the aligned "
            "file too"
        )
    columns = [find(path) for path in source.paths]
    if len({len(files) for files in columns}) != 1:
        counts = ", ".join(
            f"{path} are {len(files)}" for path, files in zip(source.paths, columns, strict=True)
        )
        raise ValueError(f"every glob of aligned files must match as many files, but {counts}")
    aligned = zip(*columns, strict=True)
    return [piece for paths in aligned for piece in aligned_pieces(paths, source, piece_bytes)]


def aligned_pieces(paths: tuple[str, ...], source: Source, piece_bytes: int) -> list[Piece]:
    for path in paths:
        refuse_binary(path)
    size = sum(map(estimated_bytes, paths))
    identity = digest_plain([file_identity(path) for path in paths])
    count = 1 if any(map(is_compressed, paths)) else max(1, -(-size // piece_bytes))
    if count == 1 and source.fraction == WHOLE:
        return [Piece(paths, ((0, None),) * len(paths), size, identity)]
    key = ["aligned", identity, source.fraction, count]
    find_out = partial(aligned_offsets, paths, source.fraction, count)
    cuts_by_file = cached_if_large(paths, key, find_out)
    spans_by_file = [list(pairwise(cuts)) for cuts in cuts_by_file]
    return [
        Piece(paths, spans, size // count, identity)
        for spans in zip(*spans_by_file, strict=True)
        if spans[0][0] < spans[0][1]
    ]


def aligned_offsets(
    paths: Sequence[str], fraction: tuple[float, float], count: int
) -> list[list[int]]:
    """Return the offsets in each file at which its `count` pieces start, and the end of the
    last."""
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
    count = 0
    last = b"\n"
    for block in read_blocks(path):
        count += block.count(b"\n")
        last = block[-1:]
    return count if last == b"\n" else count + 1


def line_offsets(path: str, numbers: list[int]) -> list[int]:
    """Return the offset at which each of these lines starts; the line numbers are sorted."""
    offsets: list[int] = []
    seen = 0  # lines ended
    offset = 0  # bytes passed
    for block in read_blocks(path):
        ended = block.count(b"\n")
        while len(offsets) < len(numbers) and numbers[len(offsets)] <= seen + ended:
            place = -1
            for _ in range(numbers[len(offsets)] - seen):
                place = block.index(b"\n", place + 1)
            offsets.append(offset + place + 1)
        seen += ended
        offset += len(block)
    return offsets + [offset] * (len(numbers) - len(offsets))


PARALLEL = ParallelFormat()
