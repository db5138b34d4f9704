"""A data format of one's own: FASTA, the files of DNA and proteins (Pearson and Lipman 1988).

    >sp|P69905|HBA_HUMAN Hemoglobin subunit alpha
    MVLSPADKTNVKAAWGKVGAHAGEYGAEALERMFLSFPTTKTYFPHFDLSHGSAQVKGHG

A row has the columns `id`, `description` and `sequence`:

    weft prepare proteins.fasta --code fasta.py --rows documents --columns sequence \
        --tokenizer characters
"""

import re
from collections.abc import Iterator
from functools import partial

from weft.data.reading.formats.lines import LineFormat, read_records
from weft.recipe import Source
from weft.recipe.data.formats import BadRow, SourceItem, SourceRow, Span
from weft.support.registry import register

HEADER = re.compile(rb">[^\n]*\S[^\n]*\n[A-Za-z*-]+\s")
SEQUENCE = re.compile(r"[A-Za-z*-]+")


@register
class Fasta(LineFormat):
    name = "fasta"
    suffixes = (".fasta", ".fa", ".faa", ".fna")

    def sniff(self, head: bytes, path: str) -> float:
        return 1.0 if HEADER.match(head) else super().sniff(head, path)

    def starts_row(self, line: bytes, after_blank: bool, source: Source) -> bool:
        return line.startswith(b">")

    def rows(
        self, path: str, span: Span, source: Source, columns: tuple[str, ...]
    ) -> Iterator[SourceItem]:
        for item in read_records(path, span, partial(self.starts_row, source=source)):
            yield item if isinstance(item, BadRow) else parse_record(item)


def parse_record(record: SourceRow) -> SourceItem:
    header, *lines = record.fields["text"].split("\n")
    name, _, description = header.removeprefix(">").strip().partition(" ")
    sequence = "".join(line.strip() for line in lines)
    if not header.startswith(">") or not name:
        return BadRow(record.offset, f"{header[:40]!r} does not name a sequence")
    if not SEQUENCE.fullmatch(sequence):
        return BadRow(record.offset, f"{name} is not a sequence of letters")
    return SourceRow(
        record.offset, {"id": name, "description": description, "sequence": sequence.upper()}
    )
