"""Formats that are lines: running text, aligned files, JSON lines, tagged words."""
import codecs
import json
from collections.abc import Iterable, Iterator
from itertools import islice, zip_longest
from typing import Any, NamedTuple

from .files import BLOCK, LIMIT, blocks
from .sentences import last_gap, starts

BOM = codecs.BOM_UTF8
CONVERT = "if the file is Latin-1, convert it: iconv -f latin1 -t utf-8"


class Found(NamedTuple):
    """A row of a source, with the place where it starts: a byte of the unpacked file, or a row's number."""
    offset: int
    fields: dict[str, Any]
    more: bool = False                     # the document goes on in the next row
    path: str | None = None                # of its file, where a piece is several


class Bad(NamedTuple):
    """A row that cannot be read, and why."""
    offset: int
    reason: str
    path: str | None = None


Item = Found | Bad
Span = tuple[int, int | None]              # from, to; None: the end
WHOLE = (0.0, 1.0)                         # a `Source.part` that is all


def stretch(count: int, part: tuple[float, float]) -> tuple[int, int]:
    """The part of so many rows: the first, and the one after the last."""
    return int(count * part[0]), int(count * part[1])


def lines(path: str, span: Span = (0, None)) -> Iterator[tuple[int, bytes | None]]:
    """The lines that start in a span of bytes, None for one that is too long to be one."""
    offset, end = span
    rest, lost = b"", 0                    # the start of an open line, and how much of a long one is gone already
    for block in blocks(path, offset):
        parts = (rest + block).split(b"\n")
        rest = parts.pop()
        for line in parts:
            if end is not None and offset >= end:
                return
            length = lost + len(line)
            yield offset, line if length <= LIMIT else None
            offset, lost = offset + length + 1, 0
        if lost + len(rest) > LIMIT:
            rest, lost = b"", lost + len(rest)
    if (rest or lost) and (end is None or offset < end):
        yield offset, rest if lost + len(rest) <= LIMIT else None


def decoded(path: str, span: Span) -> Iterator[tuple[int, str | Bad]]:
    for offset, line in lines(path, span):
        yield offset, decode(offset, line)


def decode(offset: int, line: bytes | None) -> str | Bad:
    if line is None:
        return Bad(offset, f"a line of more than {LIMIT} bytes")
    try:
        return (line.removeprefix(BOM) if offset == 0 else line).removesuffix(b"\r").decode()
    except UnicodeDecodeError as error:
        return Bad(offset, f"not UTF-8: byte 0x{error.object[error.start]:02x} at {offset + error.start}; {CONVERT}")


# Running text

def heading(line: bytes) -> bool:
    """Level one of wikitext: ` = Title = `."""
    line = line.strip()
    return line.startswith(b"= ") and line.endswith(b" =") and len(line) > 4 and not line.startswith(b"= =")


def opens(document: str, line: bytes, after_blank: bool) -> bool:
    """Does a document start at this line?"""
    return document == "line" or (heading(line) if document == "heading" else after_blank and bool(line.strip()))


def start(path: str, position: int, document: str) -> int | None:
    """The first place from `position` on where a document starts, a pure function of the file."""
    if position <= 0:
        return 0
    after_blank = False
    for offset, line in islice(lines(path, (position - 1, None)), 1, None):
        line = b"x" if line is None else line
        if opens(document, line, after_blank):
            return offset
        after_blank = not line.strip()
    return None


def documents(path: str, span: Span, document: str) -> Iterator[Item]:
    """Documents of lines. One longer than a line may be is cut there, so that memory stays bounded."""
    held: list[bytes | None] = []
    first, size, after_blank = span[0], 0, True
    for offset, line in lines(path, span):
        if held and (opens(document, line or b"x", after_blank) or size > LIMIT):
            yield from joined(first, held)
            held, size = [], 0
        first = first if held else offset
        held.append(line)
        size += len(line or b"") + 1
        after_blank = line is not None and not line.strip()
    yield from joined(first, held)


def joined(offset: int, held: list[bytes | None]) -> Iterator[Item]:
    if None in held:
        yield Bad(offset, f"a line of more than {LIMIT} bytes")
        return
    text = decode(offset, b"\n".join(line for line in held if line is not None))
    if isinstance(text, Bad):
        yield text
    elif text.strip():                     # blank lines are not a document
        yield Found(offset, {"text": text.replace("\r\n", "\n").strip("\n")})


def whole(path: str, part: tuple[float, float]) -> Iterator[Item]:
    """One document a file, or its stretch by characters; in blocks that a tokenizer cannot tell from the whole."""
    try:
        count = sum(map(len, characters(path)))
    except UnicodeDecodeError as error:
        yield Bad(0, f"not UTF-8: byte 0x{error.object[error.start]:02x}; {CONVERT}")
        return
    begin, end = int(count * part[0]), int(count * part[1])
    held, position = "", 0
    for text in characters(path):
        held += text[max(0, begin - position):max(0, end - position)]
        position += len(text)
        if len(held) > BLOCK and position < end:
            cut = starts(held)[-1] or last_gap(held)
            if cut:
                yield Found(0, {"text": held[:cut]}, more=True)
                held = held[cut:]
    if held.strip():                       # an empty file is not a document
        yield Found(0, {"text": held})


def characters(path: str) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    for block in blocks(path):
        yield decoder.decode(block)
    yield decoder.decode(b"", final=True)


# Rows

def parallel(paths: tuple[str, ...], spans: tuple[Span, ...], names: tuple[str, ...]) -> Iterator[Item]:
    """Line n of each file is one row."""
    for row in zip_longest(*(decoded(path, span) for path, span in zip(paths, spans, strict=True))):
        if None in row:
            short = paths[row.index(None)]
            raise ValueError(f"{short} has fewer lines than {next(p for p in paths if p != short)}; aligned files have as many")
        offset, texts = row[0][0], [text for _, text in row]
        bad = [Bad(offset, f"{text.reason} ({path})") for text, path in zip(texts, paths, strict=True) if isinstance(text, Bad)]
        yield bad[0] if bad else Found(offset, dict(zip(names, texts, strict=True)))


def jsonl(path: str, span: Span) -> Iterator[Item]:
    return json_rows(decoded(path, span))


def json_rows(lines: Iterable[tuple[int, str | Bad]]) -> Iterator[Item]:
    """An object a line."""
    for offset, line in lines:
        if isinstance(line, Bad):
            yield line
        elif line.strip():
            try:
                fields = json.loads(line)
                yield Found(offset, fields) if isinstance(fields, dict) else Bad(offset, "bad JSON: not an object")
            except (ValueError, RecursionError) as error:
                yield Bad(offset, f"bad JSON: {error}")


def conll(path: str, span: Span, names: tuple[str, ...]) -> Iterator[Item]:
    """A word a line with its tags, a blank line between sentences (Tjong Kim Sang and De Meulder 2003)."""
    names = names or ("words", "tags")
    for item in documents(path, span, "blank"):
        if isinstance(item, Bad):
            yield item
            continue
        rows = [line.split() for line in item.fields["text"].split("\n")]
        if rows[0][0] == "-DOCSTART-":
            continue
        short = next((row for row in rows if len(row) < len(names)), None)
        yield Bad(item.offset, f"{len(short)} columns instead of {len(names)}") if short is not None else \
            Found(item.offset, columns_of(rows, names))


def columns_of(rows: Iterable[list[str]], names: tuple[str, ...]) -> dict[str, list[str]]:
    return dict(zip(names, map(list, zip(*rows, strict=False)), strict=False))
