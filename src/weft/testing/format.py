"""Conformance of a data format: `check_format` raises an AssertionError that names the problem."""

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from ..data.preparing.jobs import piece_from_json
from ..data.reading.files import MAX_LINE_BYTES, expand, find, read_blocks
from ..data.reading.formats.base import ENDLESS
from ..data.reading.formats.lines import read_head
from ..data.reading.formats.sniff import detect_format
from ..recipe import Source
from ..recipe.data.formats import Format, SourceItem, SourceRow
from ..support.registry import named, names
from .value import calling

PIECE_SIZES = (1, 7, 50, 1000)  # bytes
# one small file of each format that is recognised by its first lines
EXAMPLES = {
    "jsonl": b'{"text": "a b", "label": 0}\n{"text": "c d", "label": 1}\n',
    "json": b'[{"text": "a b", "label": 0},\n {"text": "c d", "label": 1}]\n',
    "csv": b'text,label\n"a, b",0\nc d,1\n',
    "tsv": b"text\tlabel\na b\t0\nc d\t1\n",
    "conll": b"EU B-ORG\nrejects O\n\nPeter B-PER\nspoke O\n",
    "squad": b'{"version": "1.1", "data": [{"title": "t", "paragraphs": []}]}\n',
}


def check_format(format: str | Format, example: str | Path | Source) -> None:
    """Check that a registered format reads the same rows however files are divided, and handles
    damaged files.

    Args:
        format: the format, or its name.
        example: a file of a few valid rows, or a source if the format needs several paths.

    Raises:
        AssertionError: with the violated condition in one line; an exception of the format is its
            cause.
    """
    name = format if isinstance(format, str) else format.name
    assert name in names(Format), f"{name} is not registered: put @weft.register above its class"
    checked: Format = named(Format, name)
    source = (
        replace(example, format=name)
        if isinstance(example, Source)
        else Source(paths=(str(example),), format=name)
    )
    with calling(name):
        source = checked.complete(source)
        rows = check_whole(checked, source)
        check_pieces(checked, source, rows)
        check_parts(checked, source, rows)
        check_offsets(checked, source, rows)
        files = [path for path in expand(source.paths) if os.path.isfile(path)]
        if len(files) == 1 and len(source.paths) == 1:
            check_last_line(checked, source, rows, files[0])
            check_damage(checked, source, rows, files[0])
            check_sniffing(checked, files[0])


def read_all(format: Format, source: Source, piece_bytes: int = ENDLESS) -> list[SourceItem]:
    """Return every row and bad row of a source, read in pieces of this size."""
    pieces = format.pieces(source, piece_bytes)
    return [item._replace(path=None) for piece in pieces for item in format.read(piece, source)]


def check_whole(format: Format, source: Source) -> list[SourceItem]:
    """Check that the example has rows, that all are valid, and that a second reading returns the
    same rows.
    """
    rows = read_all(format, source)
    assert rows, f"{format.name} reads no rows from {source.paths[0]}"
    for item in rows:
        assert isinstance(item, SourceRow), f"{format.name} rejects a row of the example: {item}"
        wrong = [key for key in item.fields if not isinstance(key, str)]
        assert not wrong, f"{format.name}: column names must be strings, not {wrong[0]!r}"
    assert read_all(format, source) == rows, f"{format.name} returns different rows the second time"
    return rows


def check_pieces(format: Format, source: Source, rows: list[SourceItem]) -> None:
    """Check that pieces of any size, read alone and after conversion to JSON and back, give all
    rows in order.
    """
    for size in PIECE_SIZES:
        pieces = format.pieces(source, size)
        assert pieces == format.pieces(source, size), (
            f"{format.name} divides the same files differently"
        )
        sent = [piece_from_json(json.loads(json.dumps(piece))) for piece in pieces]
        assert sent == pieces, f"{format.name}: a piece must contain plain values only"
        backwards = [list(format.read(piece, source)) for piece in reversed(sent)]
        items = [item._replace(path=None) for part in reversed(backwards) for item in part]
        assert items == rows, (
            f"{format.name} in {len(pieces)} pieces of about {size} bytes: "
            f"{describe_difference(items, rows)}"
        )


def check_parts(format: Format, source: Source, rows: list[SourceItem]) -> None:
    """Check that the two parts of a split contain every row once; a single document is divided by
    its characters.
    """
    if len(rows) < 2:
        return
    for share in (0.3, 0.5):
        sides = [replace(source, fraction=part) for part in ((0.0, share), (share, 1.0))]
        rows_of_sides = [row for side in sides for row in content(read_all(format, side))]
        assert sorted(map(repr, rows_of_sides)) == sorted(map(repr, content(rows))), (
            f"{format.name}: the parts before and after {share} do not contain every row once"
        )


def check_offsets(format: Format, source: Source, rows: list[SourceItem]) -> None:
    """Check that offsets increase within a file, and byte offsets point to the start of a line."""
    for piece in format.pieces(source, ENDLESS):
        by_file: dict[str, list[int]] = {}
        for item in format.read(piece, source):
            by_file.setdefault(item.path or piece.paths[0], []).append(item.offset)
        for path, offsets in by_file.items():
            if format.offset_unit == "file":
                continue
            grows = all(a < b for a, b in pairwise(offsets)) or len(set(offsets)) == 1
            assert grows, f"{format.name}: offsets of {path} do not increase: {offsets[:8]}"
            if format.offset_unit == "byte":
                text = b"".join(read_blocks(path))
                wrong = [place for place in offsets if place and text[place - 1 : place] != b"\n"]
                assert not wrong, f"{format.name}: no line of {path} starts at byte {wrong[0]}"


def check_last_line(format: Format, source: Source, rows: list[SourceItem], path: str) -> None:
    """Check that the last row is read with and without a line end."""
    text = Path(path).read_bytes()
    suffix = "".join(Path(path).suffixes)
    if format.offset_unit != "byte" or b"".join(read_blocks(path)) != text:
        # rows that are no lines, or a compressed file
        return
    bare = text.removesuffix(b"\n").removesuffix(b"\r")
    for ending, end in (("without a line end", b""), ("with a line end", b"\n")):
        with copy_of(bare + end, suffix) as copy:
            items = read_all(format, replace(source, paths=(copy,)))
        assert without_line_ends(items) == without_line_ends(rows), (
            f"{format.name} reads different rows from a file {ending} after its last row: "
            f"{describe_difference(items, rows)}"
        )


def without_line_ends(rows: list[SourceItem]) -> list[object]:
    """Return the cells of the rows; a text that is a whole file keeps the line end of its last
    line, which does not count here.
    """
    return [
        strip_line_ends(row.fields) if isinstance(row, SourceRow) else row.reason for row in rows
    ]


def strip_line_ends(fields: dict[str, Any]) -> dict[str, Any]:
    return {
        name: cell.rstrip("\r\n") if isinstance(cell, str) else cell
        for name, cell in fields.items()
    }


def check_damage(format: Format, source: Source, rows: list[SourceItem], path: str) -> None:
    """Check that a truncated or non-UTF-8 file raises an error that names it, or is read without
    its bad rows.
    """
    content_ = Path(path).read_bytes()
    suffix = "".join(Path(path).suffixes)
    middle = len(content_) // 2
    for damage, damaged in (
        ("cut off", content_[: 2 * len(content_) // 3]),
        ("with a byte that is not UTF-8", content_[:middle] + b"\xff" + content_[middle:]),
        ("with a very long line", content_ + b"x" * (MAX_LINE_BYTES + 1)),
    ):
        with copy_of(damaged, suffix) as copy:
            read_rows = read_damaged(format, replace(source, paths=(copy,)), damage)
        known = content(rows)
        strange = [row.fields for row in read_rows if not row.continues and row.fields not in known]
        assert len(strange) <= 2, (
            f"{format.name}: a file {damage} gives rows that are not in the original: "
            f"{str(strange)[:200]}"
        )


def read_damaged(format: Format, source: Source, damage: str) -> list[SourceRow]:
    """Return the valid rows of a damaged file; empty if reading raises an error."""
    try:
        return [item for item in read_all(format, source) if isinstance(item, SourceRow)]
    except ValueError as error:
        if source.paths[0] in str(error):
            return []
        raise AssertionError(
            f"{format.name}: the error about a file {damage} does not name it: {error}"
        ) from error
    except Exception as error:
        raise AssertionError(
            f"{format.name}: a file {damage} raises {type(error).__name__}: {error}; yield "
            f"BadRow or raise ValueError"
        ) from error


def check_sniffing(format: Format, path: str) -> None:
    """Check that sniffing recognises the format's own file or none, and no other format's files."""
    score = format.sniff(read_head(find(path)[0]), path)
    assert 0 <= score <= 1, f"{format.name}.sniff returns {score}; give 0 to 1"
    if score:
        assert detect_format(path) == format.name, f"{path} is detected as {detect_format(path)}"
    for name, text in EXAMPLES.items():
        for suffix in ("", f".{name}", *named(Format, name).suffixes):
            with copy_of(text, suffix) as copy:
                detected = detect_format(copy)
            assert detected != format.name or name == format.name, (
                f"{format.name} claims a file of {name}"
            )


@contextmanager
def copy_of(content: bytes, suffix: str) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, f"example{suffix}")
        Path(path).write_bytes(content)
        yield path


def content(rows: list[SourceItem]) -> list[object]:
    """Return the rows without their locations."""
    return [row.fields if isinstance(row, SourceRow) else row.reason for row in rows]


def describe_difference(items: list[SourceItem], rows: list[SourceItem]) -> str:
    if len(items) != len(rows):
        return f"{len(items)} rows instead of {len(rows)}"
    place = next(i for i, (a, b) in enumerate(zip(items, rows, strict=True)) if a != b)
    return f"row {place} is {str(items[place])[:200]}, not {str(rows[place])[:200]}"
