"""JSON lines: one object per line."""

import json
from collections.abc import Iterable, Iterator

from ....recipe import Source
from ....recipe.data.formats import BadRow, SourceItem, SourceRow, Span
from .base import unnest_translation
from .lines import LineFormat, decoded_lines, full_lines


class JSONLinesFormat(LineFormat):
    name = "jsonl"
    suffixes = (".jsonl", ".ndjson")

    def sniff(self, head: bytes, path: str) -> float:
        lines = full_lines(head)
        return 0.8 if lines and lines[0].lstrip().startswith("{") else super().sniff(head, path)

    def rows(
        self, path: str, span: Span, source: Source, columns: tuple[str, ...]
    ) -> Iterator[SourceItem]:
        return parse_json_lines(decoded_lines(path, span))


# pyarrow.json is four times as fast, but one broken line costs it the whole file, and it has no
# offsets of rows
def parse_json_lines(lines: Iterable[tuple[int, str | BadRow]]) -> Iterator[SourceItem]:
    """Yield the object of each line with its offset."""
    for offset, line in lines:
        if isinstance(line, BadRow):
            yield line
        elif line.strip():
            try:
                fields = json.loads(line)
                yield (
                    SourceRow(offset, unnest_translation(fields))
                    if isinstance(fields, dict)
                    else BadRow(offset, "bad JSON: not an object")
                )
            except (ValueError, RecursionError) as error:
                yield BadRow(offset, f"bad JSON: {error}")


JSONL = JSONLinesFormat()
