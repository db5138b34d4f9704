"""JSON arrays of objects."""

import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

from ....recipe import Source
from ....recipe.data.formats import BadRow, SourceItem, SourceRow, Span
from .base import WHOLE, FileFormat, stretch, unnest_translation
from .json_cursor import JSONCursor
from .lines import full_lines

ARRAY = re.compile(r"\s*\[\s*(\{|\]\s*$)")


class JSONFormat(FileFormat):
    name = "json"
    suffixes = (".json",)
    offset_unit = "row"

    def sniff(self, head: bytes, path: str) -> float:
        return 0.9 if ARRAY.match("\n".join(full_lines(head)[:2])) else 0.0

    def rows(
        self, path: str, span: Span, source: Source, columns: tuple[str, ...]
    ) -> Iterator[SourceItem]:
        begin = 0
        end = None
        if source.fraction != WHOLE:
            begin, end = stretch(sum(1 for _ in values(path)), source.fraction)
        for place, row in islice(values(path), begin, end):
            if isinstance(row, dict):
                yield SourceRow(place, unnest_translation(row))
            else:
                yield BadRow(place, f"element {place} of the array is not an object")


def values(path: str) -> Iterator[tuple[int, Any]]:
    """Yield the elements of the array."""
    cursor = JSONCursor(path)
    if cursor.peek() != "[":
        cursor.value()
        raise ValueError(
            f"{path} is not an array of objects; "
            "write one object per line (.jsonl), or [{…}, {…}]"
        )
    for place in cursor.elements():
        yield place, cursor.value()
    cursor.end()


JSON = JSONFormat()
