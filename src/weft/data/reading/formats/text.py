"""Running text: one document per file, per line, per paragraph or per heading."""

from collections.abc import Iterator
from functools import partial

from ....recipe import Source
from ....recipe.data.formats import BadRow, SourceItem, SourceRow, Span
from ..files import BLOCK
from ..sentences import last_word_boundary, sentence_starts
from .base import estimated_bytes
from .lines import CONVERT, LineFormat, characters, read_records, refuse_binary


class TextFormat(LineFormat):
    """Where a document ends is `Source.document_boundary`. A file cannot be recognised as text: any
    bytes may be."""

    name = "text"

    def starts_row(self, line: bytes, after_blank: bool, source: Source) -> bool:
        if source.document_boundary == "heading":
            return is_wiki_heading(line)
        return source.document_boundary == "line" or (after_blank and bool(line.strip()))

    def spans(self, path: str, source: Source, piece_bytes: int) -> list[tuple[Span, int]]:
        refuse_binary(path)
        if source.document_boundary == "file":
            return [((0, None), estimated_bytes(path))]
        return super().spans(path, source, piece_bytes)

    def rows(
        self, path: str, span: Span, source: Source, columns: tuple[str, ...]
    ) -> Iterator[SourceItem]:
        if source.document_boundary == "file":
            return read_whole_file(path, source.fraction)
        return read_records(path, span, partial(self.starts_row, source=source))


def is_wiki_heading(line: bytes) -> bool:
    """Return whether a line is a heading of level one in wikitext: ` = Title = `."""
    line = line.strip()
    return (
        line.startswith(b"= ")
        and line.endswith(b" =")
        and len(line) > 4
        and not line.startswith(b"= =")
    )


def read_whole_file(path: str, fraction: tuple[float, float]) -> Iterator[SourceItem]:
    """Yield one document per file, or a range of its characters, in blocks cut where tokenization
    does not change."""
    try:
        count = sum(map(len, characters(path)))
    except UnicodeDecodeError as error:
        yield BadRow(0, f"not UTF-8: byte 0x{error.object[error.start]:02x}; {CONVERT}")
        return
    begin = int(count * fraction[0])
    end = int(count * fraction[1])
    buffer = ""
    position = 0
    for text in characters(path):
        buffer += text[max(0, begin - position) : max(0, end - position)]
        position += len(text)
        if len(buffer) > BLOCK and position < end:
            cut = sentence_starts(buffer)[-1] or last_word_boundary(buffer)
            if cut:
                yield SourceRow(0, {"text": buffer[:cut]}, continues=True)
                buffer = buffer[cut:]
    if buffer.strip():  # an empty file is not a document
        yield SourceRow(0, {"text": buffer})


TEXT = TextFormat()
