"""Large JSON files, one value at a time: memory holds one value and one block of the file."""

import json
import re
from collections.abc import Iterator
from typing import Any

from ..files import MAX_LINE_BYTES
from .lines import CONVERT, characters

MAX_VALUE_CHARACTERS = 16 * MAX_LINE_BYTES  # characters of one value that is parsed whole
SPACE = re.compile(r"[ \t\r\n]*")
# So near the end of what is read, an error or a number's end may only mean that more follows
MARGIN = 16


def describe_missing_key(value: Any, fields: dict[str, Any]) -> str | None:
    """Return which key an object lacks, if any."""
    if not isinstance(value, dict):
        return f"{str(value)[:40]!r} is not an object"
    for name, kind in fields.items():
        if name not in value:
            return f"there is no {name!r}"
        if not isinstance(value[name], kind):
            return f"{name} is {type(value[name]).__name__}"
    return None


class JSONCursor:
    """A position in a JSON text. `elements` and `members` iterate over an array or an object; at
    each step the caller reads exactly one value. Invalid JSON raises ValueError with the file and
    the character.

    Attributes:
        text: what is read of the file and not yet passed.
        at: the position in `text`.
        passed: the number of characters before `text`."""

    decoder = json.JSONDecoder()

    def __init__(self, path: str) -> None:
        self.path = path
        self.blocks = filter(None, characters(path))
        self.text = ""
        self.at = 0
        self.passed = 0

    def more(self) -> bool:
        """Read the next block; False at the end of the file."""
        try:
            block = next(self.blocks, "")
        except UnicodeDecodeError as error:
            byte = error.object[error.start]
            raise ValueError(f"{self.path} is not UTF-8: byte 0x{byte:02x}; {CONVERT}") from None
        if not block:
            return False
        self.passed += self.at
        self.text = self.text[self.at :] + block
        self.at = 0
        return True

    def peek(self) -> str:
        """Return the next character that is not white space, "" at the end."""
        while True:
            self.at = SPACE.match(self.text, self.at).end()  # type: ignore[union-attr]
            if self.at < len(self.text):
                return self.text[self.at]
            if not self.more():
                return ""

    def take(self, expected: str) -> str:
        """Read one of the `expected` characters."""
        character = self.peek()
        if not character or character not in expected:
            found = character or "its end"
            raise self.wrong(f"expected {' or '.join(expected)}, found {found}")
        self.at += 1
        return character

    def wrong(self, reason: str) -> ValueError:
        place = self.passed + self.at
        return ValueError(f"{self.path} is not JSON: {reason} at character {place:,}")

    def value(self) -> Any:
        """Return the value at the cursor."""
        self.peek()
        while True:
            value, end, error = self.parse()
            is_open = error.startswith("Unterminated string") or end > len(self.text) - MARGIN
            if not (is_open and self.double()):
                break
        self.at = end
        if error:
            raise self.wrong(error)
        return value

    def parse(self) -> tuple[Any, int, str]:
        """Return the value at the cursor, where it or its first error ends, and the error."""
        try:
            return *self.decoder.raw_decode(self.text, self.at), ""
        except json.JSONDecodeError as error:
            return None, min(error.pos, len(self.text)), error.msg
        except RecursionError:
            raise self.wrong("values nested too deeply") from None
        except ValueError as error:  # an integer of more digits than Python reads
            raise self.wrong(str(error)) from None

    def double(self) -> bool:
        """Read until twice as much is left of the text, so that a long value is parsed about twice;
        False at the end of the file."""
        left = len(self.text) - self.at
        if left > MAX_VALUE_CHARACTERS:
            raise self.wrong(f"a value of more than {MAX_VALUE_CHARACTERS:,} characters")
        going = True
        while going and len(self.text) - self.at < 2 * left:
            going = self.more()
        return len(self.text) - self.at > left

    def items(self, opening: str, closing: str) -> Iterator[None]:
        """Go from item to item of an array or an object."""
        self.take(opening)
        if self.peek() == closing:
            self.at += 1
            return
        while True:
            yield
            if self.take(f",{closing}") == closing:
                return

    def elements(self) -> Iterator[int]:
        """Yield the index of each element of an array."""
        for place, _ in enumerate(self.items("[", "]")):
            yield place

    def members(self) -> Iterator[str]:
        """Yield the name of each member of an object."""
        for _ in self.items("{", "}"):
            if self.peek() != '"':
                raise self.wrong("expected a name in double quotes")
            name = self.value()
            self.take(":")
            yield name

    def arrays(self, *names: str) -> Iterator[str]:
        """Yield each of these members of an object that is an array, which the caller reads; all
        else is passed over."""
        if self.peek() != "{":
            self.value()
            return
        for name in self.members():
            if name in names and self.peek() == "[":
                yield name
            else:
                self.value()

    def end(self) -> None:
        if self.peek():
            raise self.wrong("more text after the value")
