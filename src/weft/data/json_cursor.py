"""Large JSON files, one value at a time: memory holds one value and one block of the file."""

import json
import re
from collections.abc import Iterator
from typing import Any

from .files import MAX_LINE_BYTES
from .formats.lines import CONVERT, characters

MAX_VALUE_CHARACTERS = 16 * MAX_LINE_BYTES  # characters of one value that is parsed whole
MAX_DIGITS = 4000  # of an integer; Python converts no more than 4300
SPACE = re.compile(r"[ \t\r\n]*")
MARGIN = 16  # so near the end of what is read, an error or a number's end may only mean that more follows


def parse_int(digits: str) -> int | float:
    """Return an integer; one with very many digits becomes infinity, which the check of its row refuses."""
    return int(digits) if len(digits) <= MAX_DIGITS else float(digits)


def describe_missing_key(value: Any, fields: dict[str, Any]) -> str | None:
    """Return which key an object lacks, if any."""
    if not isinstance(value, dict):
        return f"{str(value)[:40]!r} is not an object"
    missing = next((name for name in fields if name not in value), None)
    if missing:
        return f"there is no {missing!r}"
    wrong = next((name for name, kind in fields.items() if not isinstance(value[name], kind)), None)
    return f"{wrong} is {type(value[wrong]).__name__}" if wrong else None


DECODER = json.JSONDecoder(parse_int=parse_int)


class JSONCursor:
    """A position in a JSON text. `elements` and `members` iterate over an array or an object; at each step the caller reads exactly one
    value. Invalid JSON raises ValueError with the file and the character."""

    def __init__(self, path: str) -> None:
        self.path, self.source = path, characters(path)
        self.text, self.at, self.passed = (
            "",
            0,
            0,
        )  # the block, the place in it, and characters before it

    def more(self) -> bool:
        """Read the next block; False at the end of the file."""
        try:
            block = next((block for block in self.source if block), "")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{self.path} is not UTF-8: byte 0x{error.object[error.start]:02x}; {CONVERT}"
            ) from None
        if not block:
            return False
        self.passed += self.at
        self.text, self.at = self.text[self.at :] + block, 0
        return True

    def peek(self) -> str:
        """Return the next character that is not white space, "" at the end."""
        while True:
            self.at = SPACE.match(self.text, self.at).end()  # type: ignore[union-attr]
            if self.at < len(self.text):
                return self.text[self.at]
            if not self.more():
                return ""

    def take(self, wanted: str) -> str:
        """Read one of the `wanted` characters."""
        take = self.peek()
        if not take or take not in wanted:
            raise self.wrong(f"expected {' or '.join(wanted)}, found {take or 'its end'}")
        self.at += 1
        return take

    def wrong(self, reason: str) -> ValueError:
        return ValueError(
            f"{self.path} is not JSON: {reason} at character {self.passed + self.at:,}"
        )

    def value(self) -> Any:
        """Return the value at the cursor."""
        self.peek()
        size = max(1, len(self.text) - self.at)
        while True:
            value, final = self.attempt()
            if final:
                return value
            size *= 2  # doubled each time, so that a long value is scanned about twice
            going = True
            while going and len(self.text) - self.at < size:
                going = self.more()
            if not going:
                value, final = self.attempt(ended=True)
                assert final
                return value
            if size > 2 * MAX_VALUE_CHARACTERS:
                raise self.wrong(f"a value of more than {MAX_VALUE_CHARACTERS:,} characters")

    def attempt(self, ended: bool = False) -> tuple[Any, bool]:
        """Return a value and True, or False if the text read so far may end inside it."""
        try:
            value, end = DECODER.raw_decode(self.text, self.at)
        except RecursionError:
            raise self.wrong("values nested too deeply") from None
        except json.JSONDecodeError as error:
            if not ended and (
                error.msg.startswith("Unterminated string") or error.pos > len(self.text) - MARGIN
            ):
                return None, False
            self.at = min(error.pos, len(self.text))
            raise self.wrong(error.msg) from None
        if end > len(self.text) - MARGIN and not ended:  # 12 may go on as 123, and 1e as 1e5
            return None, False
        self.at = end
        return value, True

    def elements(self) -> Iterator[int]:
        """Yield the index of each element of an array."""
        self.take("[")
        if self.peek() == "]":
            self.at += 1
            return
        place = 0
        while True:
            yield place
            place += 1
            if self.take(",]") == "]":
                return

    def members(self) -> Iterator[str]:
        """Yield the name of each member of an object."""
        self.take("{")
        if self.peek() == "}":
            self.at += 1
            return
        while True:
            if self.peek() != '"':
                raise self.wrong("expected a name in double quotes")
            name = self.value()
            self.take(":")
            yield name
            if self.take(",}") == "}":
                return

    def end(self) -> None:
        if self.peek():
            raise self.wrong("more text after the value")
