"""The lines of a log: JSON objects, each with a checksum of its own bytes, which lines of earlier
versions lack.
"""

import json
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple
from zlib import crc32

from .loggers import KINDS, Line, LineKey, line_key

VALIDATION_KEYS = KINDS[1:]  # kinds of lines other than steps
NUMBERS = ("loss", "grad_norm", "lr", "seconds", "data_seconds", "tokens", "images")
CHECKSUM = b', "checksum": "'  # of all bytes before it, in hexadecimal


def format_line(line: Line) -> bytes:
    text = json.dumps(line).encode().removesuffix(b"}")
    return text + CHECKSUM + b'%08x"}\n' % crc32(text)


def parse(text: bytes) -> Line | None:
    """Parse a line that `RunLog` wrote; None if it is damaged or foreign."""
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(line, dict) or type(line.get("step")) is not int:
        return None
    content, has_checksum, _ = text.rpartition(CHECKSUM)
    if has_checksum and line.pop("checksum", None) != f"{crc32(content):08x}":
        return None
    measured = [line[name] for name in VALIDATION_KEYS if name in line]
    good = all(
        isinstance(part, dict) and all(is_number(value) for value in part.values())
        for part in measured
    )
    good &= bool(measured) or "loss" in line
    return (
        line
        if good and all(line.get(name) is None or is_number(line[name]) for name in NUMBERS)
        else None
    )


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


class LogLine(NamedTuple):
    """A line of a log, in its file."""

    number: int  # from 1
    end: int  # bytes up to its end
    line: Line | None
    damaged: bool  # or foreign or repeated; False for a truncated last line


def scan(file: BinaryIO) -> Iterator[LogLine]:
    """Read a log from its start. After the first line with a checksum, each line must have one, and
    no line may repeat.
    """
    keys = set[LineKey]()
    end = 0
    for number, text in enumerate(file, 1):
        whole = text.endswith(b"\n")
        line = parse(text) if whole else None
        end += len(text)
        if line is not None and CHECKSUM in text:
            key = line_key(line)
            line = None if key in keys else line
            keys.add(key)
        elif keys:
            line = None
        yield LogLine(number, end, line, line is None and whole)
