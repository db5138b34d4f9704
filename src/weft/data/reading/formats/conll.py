"""CoNLL: one word and its tags per line, an empty line between sentences (Tjong Kim Sang and De
Meulder 2003)."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from ....recipe import Source
from ....recipe.data.formats import SUFFIX_SCORE, BadRow, SourceItem, SourceRow, Span
from ..files import find
from .lines import SNIFF_LINES, LineFormat, full_lines, head_lines, read_head, read_records
from .sniff import formats_by_suffix

DEFAULT_NAMES = ("words", "tags")


class CoNLLFormat(LineFormat):
    name = "conll"
    suffixes = (".conll",)

    def sniff(self, head: bytes, path: str) -> float:
        if self.has_suffix(path):
            return SUFFIX_SCORE
        return 0.4 if not formats_by_suffix(path) and looks_like_conll(head_lines(head)) else 0.0

    def starts_row(self, line: bytes, after_blank: bool, source: Source | None = None) -> bool:
        return after_blank and bool(line.strip())

    def rows(
        self, path: str, span: Span, source: Source, columns: tuple[str, ...]
    ) -> Iterator[SourceItem]:
        names = source.column_names or DEFAULT_NAMES
        for item in read_records(path, span, self.starts_row):
            if isinstance(item, BadRow):
                yield item
                continue
            rows = [line.split() for line in item.fields["text"].split("\n")]
            if rows[0][0] == "-DOCSTART-":
                continue
            short = next((row for row in rows if len(row) < len(names)), None)
            yield (
                BadRow(item.offset, f"{len(short)} columns instead of {len(names)}")
                if short is not None
                else SourceRow(item.offset, columns_of_words(rows, names))
            )

    def detect_columns(
        self,
        source: Source,
        expected: Sequence[str] = (),
        reference: Source | None = None,
        assume_header: bool = False,
    ) -> Source:
        """Take the first column as the words, and the last one that looks like tags as the tags,
        unless a model was trained on others."""
        if source.column_names:
            return source
        if reference is not None and reference.format == self.name:
            return replace(source, column_names=reference.column_names)
        lines = full_lines(read_head(find(source.paths[0])[0]))
        width = min((len(line.split()) for line in lines), default=0)
        if not width:
            return source
        numbered = tuple(f"column{i}" for i in range(width))
        some = self.first_rows(replace(source, column_names=numbered), SNIFF_LINES)
        seen = {name: {tag for row in some for tag in row.fields[name]} for name in numbered[1:]}
        marked = [name for name, tags in seen.items() if any(tag[1:2] == "-" for tag in tags)]
        varied = [name for name, tags in seen.items() if len(tags) > 1]
        best = (marked or varied or [numbered[-1]])[-1]
        named = (
            "tags" if name == best else name for name in numbered[1 : numbered.index(best) + 1]
        )
        return replace(source, column_names=("words", *named))


def looks_like_conll(first: Sequence[str]) -> bool:
    """Return whether lines have a word and its columns, with empty lines between sentences."""
    full = [line.split() for line in first if line.strip()]
    return (
        any(not line.strip() for line in first[:-1])
        and len({len(row) for row in full}) == 1
        and 2 <= len(full[0]) <= 6
    )


def columns_of_words(rows: Iterable[list[str]], names: tuple[str, ...]) -> dict[str, list[str]]:
    return dict(zip(names, map(list, zip(*rows, strict=False)), strict=False))


CONLL = CoNLLFormat()
