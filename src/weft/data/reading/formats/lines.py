"""Formats of lines: the lines of a file, and where one can be divided."""

import codecs
import inspect
import secrets
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice, pairwise

from ....recipe import Source
from ....recipe.data.formats import BadRow, SourceItem, SourceRow, Span
from ....support.addresses import is_remote
from ....support.storage import DamagedFile
from ..files import (
    MAX_LINE_BYTES,
    file_identity,
    file_size,
    is_compressed,
    read_blocks,
    refuse_special,
    unpacked_size,
)
from .base import WHOLE, FileFormat, cached_if_large, estimated_bytes

BOM = codecs.BOM_UTF8
CONVERT = "if the file is Latin-1, convert it: iconv -f latin1 -t utf-8"
SNIFF_LINES = 200  # lines that tell what a file is
SHORT = 1 << 16  # characters of a file that is read to its end

StartsRow = Callable[[bytes, bool], bool]  # a line, and whether a blank one is before it


class LineFormat(FileFormat):
    """A format of lines. A file is divided where a row starts, so that a piece reads whole rows
    only."""

    def starts_row(self, line: bytes, after_blank: bool, source: Source) -> bool:
        """Return whether a row starts at this line. A row of one line: always.

        Args:
            line: the line without its end.
            after_blank: whether the line before it is blank or missing.
            source: the source, for its options.
        """
        return True

    def spans(self, path: str, source: Source, piece_bytes: int) -> list[tuple[Span, int]]:
        """Divide a file at rows; a compressed one is read from its start, so that it stays
        whole."""
        if is_compressed(path) and source.fraction == WHOLE:
            return [((0, None), estimated_bytes(path))]
        starts = partial(self.starts_row, source=source)
        find_out = partial(part_span, path, source.fraction, starts)
        begin, end = (
            cached_if_large([path], ["stretch", *self.cut_key(path, source)], find_out)
            if is_compressed(path)
            else find_out()
        )
        cuts = {begin, end}
        if not is_compressed(path):
            cuts |= {
                min(end, row_start_after(path, place, file_size(path), starts))
                for place in range(begin + piece_bytes, end, piece_bytes)
            }
        return [((a, b), b - a) for a, b in pairwise(sorted(cuts))]

    def cut_key(self, path: str, source: Source) -> list[object]:
        """Return what a cached division depends on: the bytes, the fraction, and the code that
        finds the start of a row."""
        try:
            code = file_identity(inspect.getfile(type(self)))
        except (TypeError, OSError):  # a class that was typed at a prompt: never the same
            code = secrets.token_hex(8)
        return [file_identity(path), source.fraction, self.name, source.document_boundary, code]


def part_span(path: str, fraction: tuple[float, float], starts: StartsRow) -> tuple[int, int]:
    """Return the range of bytes of a `Source.fraction`, both ends at the start of a row."""
    total = unpacked_size(path)
    begin, end = (row_start_after(path, int(total * share), total, starts) for share in fraction)
    return begin, end


def row_start_after(path: str, position: int, total: int, starts: StartsRow) -> int:
    """Return the first position from `position` on at which a row starts, a pure function of the
    file."""
    if position <= 0 or position >= total:
        return min(max(position, 0), total)
    after_blank = False
    for offset, line in islice(read_lines(path, (position - 1, None)), 1, None):
        line = b"x" if line is None else line
        if starts(line, after_blank):
            return offset
        after_blank = not line.strip()
    return total


def read_records(path: str, span: Span, starts: StartsRow) -> Iterator[SourceItem]:
    """Yield rows of several lines, each a `text`. One above the maximum length of a line is split
    there, so that memory stays bounded."""
    record_lines: list[bytes | None] = []
    first = span[0]
    size = 0
    after_blank = True
    for offset, line in read_lines(path, span):
        if record_lines and (starts(line or b"x", after_blank) or size > MAX_LINE_BYTES):
            yield from join_record(first, record_lines)
            record_lines = []
            size = 0
        first = first if record_lines else offset
        record_lines.append(line)
        size += len(line or b"") + 1
        after_blank = line is not None and not line.strip()
    yield from join_record(first, record_lines)


def join_record(offset: int, record_lines: list[bytes | None]) -> Iterator[SourceItem]:
    if None in record_lines:
        yield BadRow(offset, f"a line of more than {MAX_LINE_BYTES} bytes")
        return
    text = decode_line(offset, b"\n".join(line for line in record_lines if line is not None))
    if isinstance(text, BadRow):
        yield text
    elif text.strip():  # blank lines are not a row
        yield SourceRow(offset, {"text": text.replace("\r\n", "\n").strip("\n")})


def read_lines(path: str, span: Span = (0, None)) -> Iterator[tuple[int, bytes | None]]:
    """Yield the lines that start in a range of bytes, None for one that is too long."""
    offset, end = span
    rest = b""  # the start of an open line
    lost = 0  # bytes of a long line that are gone already
    for block in read_blocks(path, offset):
        parts = (rest + block).split(b"\n")
        rest = parts.pop()
        for line in parts:
            if end is not None and offset >= end:
                return
            length = lost + len(line)
            yield offset, line if length <= MAX_LINE_BYTES else None
            offset += length + 1
            lost = 0
        if lost + len(rest) > MAX_LINE_BYTES:
            lost += len(rest)
            rest = b""
    if (rest or lost) and (end is None or offset < end):
        yield offset, rest if lost + len(rest) <= MAX_LINE_BYTES else None


def decoded_lines(path: str, span: Span) -> Iterator[tuple[int, str | BadRow]]:
    for offset, line in read_lines(path, span):
        yield offset, decode_line(offset, line)


def decode_line(offset: int, line: bytes | None) -> str | BadRow:
    if line is None:
        return BadRow(offset, f"a line of more than {MAX_LINE_BYTES} bytes")
    try:
        return (line.removeprefix(BOM) if offset == 0 else line).removesuffix(b"\r").decode()
    except UnicodeDecodeError as error:
        return BadRow(
            offset,
            f"not UTF-8: byte 0x{error.object[error.start]:02x} at {offset + error.start}; "
            f"{CONVERT}",
        )


def characters(path: str) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    for block in read_blocks(path):
        yield decoder.decode(block)
    yield decoder.decode(b"", final=True)


# The first lines, which tell what a file is


def read_head(path: str) -> bytes:
    """Return the first decompressed bytes of a file; empty if it cannot be decompressed."""
    refuse_special(path)
    try:
        return next(read_blocks(path), b"")
    except DamagedFile:
        return b""


def is_binary(head: bytes) -> bool:
    """Return whether the first bytes of a file are no text: zeros among what is not UTF-8, or many
    zeros, as UTF-16 has them."""
    start = head[:SHORT]
    try:
        codecs.getincrementaldecoder("utf-8")().decode(start)  # its last character may be cut
    except UnicodeDecodeError:
        return b"\0" in start
    return start.count(b"\0") > len(start) / 10


def binary_fix(head: bytes) -> str:
    """Return what to do with a file that is no text. In UTF-16 without a byte order mark, the zeros
    are all at even or all at odd places."""
    even = b"\0" in head[0:SHORT:2]
    odd = b"\0" in head[1:SHORT:2]
    if even == odd:
        return "give text in UTF-8"
    return f"if it is UTF-16, convert it: iconv -f {'utf-16le' if odd else 'utf-16be'} -t utf-8"


def refuse_binary(path: str) -> None:
    """Raise ValueError for a local file that is no text; of an address, the rows tell."""
    if not is_remote(path) and is_binary(head := read_head(path)):
        raise ValueError(f"{path} is a binary file, not text; {binary_fix(head)}")


def head_lines(head: bytes) -> list[str]:
    """Return the first lines of a file that starts with these bytes; of one long line, its
    start."""
    text = head.decode("utf-8-sig", errors="replace")
    lines = text.split("\n")
    whole = lines if len(text) <= SHORT else lines[: max(1, len(lines) - 1)]
    return whole[:SNIFF_LINES]


def full_lines(head: bytes) -> list[str]:
    """Return the first lines that are not empty."""
    return [line for line in head_lines(head) if line.strip()]
