"""Sources: what a `Source` names, cut into pieces of work, and the rows of a piece."""
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import accumulate, groupby, pairwise
from typing import Any, NamedTuple

from .. import recipe as R
from ..values import to_plain
from . import delimited, lines, records
from .address import remote
from .files import BLOCK, blocks, digest, expand, find, identity, packed, remembered, size, stamp, unpacked_size, unpacking_error
from .lines import Bad, Item, Span
from .sniff import SUFFIXES, delimiter_of, format_of, suffix_of
from .squad import squad

PIECE = 1 << 24                            # bytes of a piece: a shard is made in seconds


class Piece(NamedTuple):
    """Work for one process: files and the span of each, in unpacked bytes, lines of a table or rows, as the format has it."""
    paths: tuple[str, ...]
    spans: tuple[Span, ...]
    size: int                              # bytes to read, about
    identity: str                          # what the files hold


def settled(source: R.Source, row: R.Row) -> R.Source:
    """The source with its format and its delimiter, from the kind of row and the file's name or first lines where they are not given."""
    kind: Any = source.format or format_for(source, row)
    cut: Any = source.delimiter or (delimiter_of(source.paths[0]) if kind == "csv" else None)
    return replace(source, format=kind, delimiter=cut)


def format_for(source: R.Source, row: R.Row) -> str:
    path = source.paths[0] if source.paths else ""
    suffix = suffix_of(path)
    if isinstance(row, R.Questions):
        return "squad"
    if isinstance(row, R.Boxed):
        return "coco"
    if suffix not in SUFFIXES and isinstance(row, R.Images):
        return "folder"
    if suffix not in SUFFIXES and isinstance(row, R.Tagged):
        return "conll"
    if suffix not in SUFFIXES and isinstance(row, R.Pairs | R.Templated) and len(source.paths) == 2:
        return "parallel"
    if suffix not in SUFFIXES and isinstance(row, R.Documents):
        return "text"
    return format_of(path)


def pieces(source: R.Source) -> list[Piece]:
    """The work that a source is: a pure function of its files."""
    if not source.paths:
        raise ValueError("Source.paths is empty; name at least one file")
    if source.part[0] >= source.part[1]:
        raise ValueError(f"Source.part = {source.part}: the second must be larger")
    if source.format == "hub":
        return [p for path in source.paths for p in hub_pieces(path, source.part)]
    if source.format == "parallel":
        return parallel_pieces(source)
    if source.format == "coco":
        return coco_pieces(source)
    if source.format == "folder":
        return [p for path in expand(source.paths) for p in folder_pieces(path, source.part)]
    found: list[list[Piece]] = []
    for path in expand(source.paths):
        if os.path.isdir(path):
            raise ValueError(f"{path} is a folder; give its files, such as {path}/*.txt")
        word = identity(path)
        if source.format == "parquet":
            spans = parquet_spans(path, source.part)
        elif source.format in ("csv", "squad", "json") or (source.format == "text" and source.document == "file"):
            spans = [((0, None), about(path))]
        else:
            spans = byte_spans(path, source, word)
        found.append([Piece((path,), (span,), bytes_, word) for span, bytes_ in spans])
    return together(found)


def together(files: list[list[Piece]]) -> list[Piece]:
    """Small files, each one piece, make pieces of about the usual size; the pieces of a large one stay as they are."""
    found: list[Piece] = []
    for small, run in groupby(files, lambda own: len(own) < 2 and sum(piece.size for piece in own) < PIECE):
        flat = [piece for own in run for piece in own]
        groups = [group for group, _ in grouped(flat, [piece.size for piece in flat])] if small else [[piece] for piece in flat]
        found += [group[0] if len(group) == 1 else Piece(
            tuple(p.paths[0] for p in group), tuple(p.spans[0] for p in group), sum(p.size for p in group),
            digest([p.identity for p in group])) for group in groups]
    return found


def byte_spans(path: str, source: R.Source, word: str) -> list[tuple[Span, int]]:
    """Spans that begin where a document does."""
    document = source.document if source.format == "text" else "blank" if source.format == "conll" else "line"
    if packed(path) and source.part == lines.WHOLE:
        return [((0, None), about(path))]
    find_out = partial(stretch, path, source.part, document)
    begin, end = once([path], ["stretch", word, source.part, document], find_out) if packed(path) else find_out()
    cuts = [begin]
    if not packed(path):
        cuts += [edge(path, place, size(path), document) for place in range(begin + PIECE, end, PIECE)]
    cuts = sorted({min(cut, end) for cut in (*cuts, end)})
    return [((a, b), b - a) for a, b in pairwise(cuts)]


def stretch(path: str, part: tuple[float, float], document: str) -> tuple[int, int]:
    total = unpacked_size(path)
    begin, end = (edge(path, int(total * share), total, document) for share in part)
    return begin, end


def once(paths: Sequence[str], words: list[Any], find_out: Callable[[], Any]) -> Any:
    """What takes reading the files through is remembered, unless they are small."""
    return remembered(["1", [packed(path) for path in paths], *words], find_out) if sum(map(about, paths)) > BLOCK else find_out()


def about(path: str) -> int:
    """Bytes to read: text packs to about a third."""
    return size(path) * (3 if packed(path) else 1)


def edge(path: str, place: int, total: int, document: str) -> int:
    found = None if place >= total else lines.start(path, place, document)
    return total if found is None else found


def parquet_spans(path: str, part: tuple[float, float]) -> list[tuple[Span, int]]:
    groups = records.parquet_groups(path)
    begin, end = lines.stretch(sum(rows for rows, _ in groups), part)
    spans: list[tuple[Span, int]] = []
    place, first, held = 0, begin, 0
    for i, (rows, bytes_) in enumerate(groups):
        place, held = place + rows, held + bytes_
        stop = min(place, end)
        if stop > first and (held >= PIECE or i == len(groups) - 1 or place >= end):
            spans.append(((first, stop), held))
            first, held = stop, 0
    return spans


def hub_pieces(path: str, part: tuple[float, float]) -> list[Piece]:
    data = records.hub_table(path)
    begin, end = lines.stretch(len(data), part)
    step = max(1, PIECE * len(data) // max(1, data.data.nbytes))
    return [Piece((path,), ((a, min(a + step, end)),), PIECE, str(data._fingerprint)) for a in range(begin, end, step)]


def parallel_pieces(source: R.Source) -> list[Piece]:
    """Aligned files are cut at the same lines; each glob must match as many files."""
    if len(source.paths) < 2:
        raise ValueError(f"parallel files come in pairs; there is only {source.paths[0]}")
    columns = [find(path) for path in source.paths]
    if len({len(files) for files in columns}) != 1:
        counts = ", ".join(f"{path} are {len(files)}" for path, files in zip(source.paths, columns, strict=True))
        raise ValueError(f"aligned files are as many, but {counts}")
    found = []
    for paths in zip(*columns, strict=True):
        bytes_, word = sum(map(about, paths)), digest([identity(path) for path in paths])
        count = 1 if any(map(packed, paths)) else max(1, -(-bytes_ // PIECE))
        if count == 1 and source.part == lines.WHOLE:
            found.append(Piece(paths, ((0, None),) * len(paths), bytes_, word))
            continue
        places = once(paths, ["aligned", word, source.part, count], partial(aligned, paths, source.part, count))
        found += [Piece(paths, tuple((p[i], p[i + 1]) for p in places), bytes_ // count, word)
                  for i in range(count) if places[0][i] < places[0][i + 1]]
    return found


def aligned(paths: Sequence[str], part: tuple[float, float], count: int) -> list[list[int]]:
    """The bytes of each file at which its `count` pieces start, and the last one's end."""
    totals = {path: line_count(path) for path in paths}
    if len(set(totals.values())) != 1:
        raise ValueError("aligned files have as many lines, but " + ", ".join(f"{p} has {n}" for p, n in totals.items()))
    begin, end = lines.stretch(totals[paths[0]], part)
    cuts = [begin + (end - begin) * i // count for i in range(count + 1)]
    return [line_places(path, cuts) for path in paths]


def line_count(path: str) -> int:
    count, last = 0, b"\n"
    for block in blocks(path):
        count, last = count + block.count(b"\n"), block[-1:]
    return count + (last != b"\n")


def line_places(path: str, numbers: list[int]) -> list[int]:
    """The byte at which each of these lines starts, numbers in order."""
    found: list[int] = []
    seen, offset = 0, 0                    # lines ended, bytes passed
    for block in blocks(path):
        ended = block.count(b"\n")
        while len(found) < len(numbers) and numbers[len(found)] <= seen + ended:
            place = -1
            for _ in range(numbers[len(found)] - seen):
                place = block.index(b"\n", place + 1)
            found.append(offset + place + 1)
        seen, offset = seen + ended, offset + len(block)
    return found + [offset] * (len(numbers) - len(found))


def folder_pieces(path: str, part: tuple[float, float]) -> list[Piece]:
    files = records.image_files(path, part)
    return [Piece(tuple(group), (), bytes_, digest([[os.path.relpath(name, path), stamp(name)] for name in group]))
            for group, bytes_ in grouped(files, [records.file_size(name) for name in files])]


def grouped(files: list[Any], sizes: list[int]) -> Iterator[tuple[list[Any], int]]:
    """Consecutive files of about a piece together."""
    ends = list(accumulate(sizes))
    first, before = 0, 0
    for i, end in enumerate(ends):
        if end - before >= PIECE or i == len(files) - 1:
            yield files[first:i + 1], end - before
            first, before = i + 1, end


def coco_pieces(source: R.Source) -> list[Piece]:
    if len(source.paths) != 2:
        raise ValueError(f"a COCO source has two paths, the JSON and the folder of images, not {len(source.paths)}")
    (table,), (root,) = map(find, source.paths)
    word = identity(table)
    names = [os.path.join(root, name) if name else "" for name in records.coco_table(table, stamp(table)).files]
    begin, end = lines.stretch(len(names), source.part)
    sizes = [records.file_size(names[i]) for i in range(begin, end)]
    return [Piece((table, root), ((group[0], group[-1] + 1),), bytes_,
                  digest([word, [stamp(names[i]) for i in group]]))
            for group, bytes_ in grouped(list(range(begin, end)), sizes)]


def read(source: R.Source, piece: Piece, columns: tuple[str, ...] = ()) -> Iterator[Item]:
    """The rows of a piece in the files' order, bad ones in their place."""
    if len(piece.paths) > 1 and source.format not in ("parallel", "folder", "coco"):
        for path, span in zip(piece.paths, piece.spans, strict=True):
            for item in unpacked_rows(source, Piece((path,), (span,), 0, ""), columns):
                yield item._replace(path=path)
    else:
        yield from unpacked_rows(source, piece, columns)


def unpacked_rows(source: R.Source, piece: Piece, columns: tuple[str, ...]) -> Iterator[Item]:
    """The rows of a piece. No row of a damaged archive can be trusted, for its checksum is of all of it: each that is found is bad."""
    files = () if source.format in ("folder", "coco", "hub", "parquet") else piece.paths
    reason = next(filter(None, map(damage, files)), None)
    if reason is None:
        yield from rows(source, piece, columns)
        return
    found = 0
    with suppress(ValueError):
        for found, item in enumerate(rows(source, piece, columns), 1):       # noqa: B007
            yield Bad(item.offset, reason)
    if not found:
        yield Bad(0, reason)


def damage(path: str) -> str | None:
    """What is wrong with a packed local file, if something is; found out once."""
    if remote(path) or not packed(path):
        return None
    reason: str | None = once([path], ["unpacking", identity(path)], partial(unpacking_error, path))
    return reason


def rows(source: R.Source, piece: Piece, columns: tuple[str, ...]) -> Iterator[Item]:
    path, span = piece.paths[0], piece.spans[0] if piece.spans else (0, None)
    match source.format:
        case "text":
            return lines.whole(path, source.part) if source.document == "file" else lines.documents(path, span, source.document)
        case "parallel":
            return lines.parallel(piece.paths, piece.spans, source.names or ("source", "target"))
        case "jsonl":
            return lines.jsonl(path, span)
        case "tsv":
            return delimited.tsv(path, span, source.names, source.header)
        case "csv":
            return delimited.table(path, source.part, source.names, source.header, source.delimiter or ",")
        case "json":
            return records.array(path, source.part)
        case "conll":
            return lines.conll(path, span, source.names)
        case "parquet":
            return records.parquet(path, span, columns)
        case "hub":
            return records.hub(path, span)
        case "squad":
            return squad(path, source.part)
        case "folder":
            return records.folder(piece.paths)
        case "coco":
            return records.coco(piece.paths, span)
    raise ValueError(f"a source without a format: {source.paths[0]}")


def reading(source: R.Source) -> Any:
    """All that decides how its bytes are read, without where they are."""
    return {name: plain for name, plain in to_plain(source).items() if name != "paths"}
