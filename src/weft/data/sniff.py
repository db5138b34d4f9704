"""What a file is, from its first lines and its name: format, delimiter, and whether the first line names the columns."""
import csv
import os
import re
from collections import Counter
from collections.abc import Sequence
from math import isfinite
from typing import Any

from .files import LIMIT, Damaged, Missing, bare, blocks, find, refuse_special

SUFFIXES = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json", ".csv": "csv", ".tsv": "tsv", ".parquet": "parquet", ".conll": "conll"}
SNIFF, SHORT = 200, 1 << 16                # lines that tell what a file is; characters of a file that is read to its end
MOST = 0.9                                 # of the lines of a file without a known name hold the delimiter
ARRAY = re.compile(r"\s*\[\s*(\{|\]\s*$)")

FIRST = ("text", "sentence", "sentence1", "premise", "first", "question1", "sentence_a", "#1 string", "review", "content", "question")
SECOND = ("sentence2", "hypothesis", "second", "question2", "sentence_b", "#2 string", "text2", "text_b")
LABELS = ("label", "labels", "gold_label", "class", "category", "target", "score", "similarity", "relatedness", "relatedness_score",
          "sentiment", "quality", "rating", "stars", "intent", "polarity", "y", "tags", "ner_tags", "answer")
WORDS, TAGS = ("words", "tokens"), ("tags", "ner_tags", "ner", "pos_tags", "labels")
CONTEXTS, ENDINGS = ("context", "ctx", "startphrase", "question", "premise", "sent1", "text"), ("endings", "choices", "options", "answers")
SOURCE, TARGET = ("source", "src", "en"), ("target", "tgt", "trg", "de", "fr")
USUAL = {*FIRST, *SECOND, *LABELS, *WORDS, *TAGS, *CONTEXTS, *ENDINGS, *SOURCE, *TARGET, "prompt", "id"} - {"y"}


def suffix_of(path: str) -> str:
    return os.path.splitext(bare(path))[1].lower()


def head_of(path: str) -> list[str]:
    """The first lines; of a file that is one long line, its start; none of one that cannot be unpacked."""
    refuse_special(path)
    try:
        text = next(blocks(path), b"").decode("utf-8-sig", errors="replace")
    except Damaged:
        return []
    found = text.split("\n")
    return found[:min(SNIFF, max(1, len(found) - 1))] if len(text) > SHORT else found[:SNIFF]


def format_of(path: str) -> str:
    """From the first lines, then from the name: a table in a .csv may have tabs, a .json may hold one object a line."""
    named = SUFFIXES.get(suffix_of(path))
    if named == "parquet":
        return named
    try:
        first = head_of(find(path)[0])
    except Missing:
        if named is None or named == "json":
            raise
        return named                       # of a run whose data are gone
    full = [line for line in first if line.strip()]
    if not full:
        if named is None:
            raise ValueError(f"{path} is empty")
        return named
    if ARRAY.match("\n".join(full[:2])):
        return "json"
    if full[0].lstrip().startswith("{"):
        return "squad" if any('"paragraphs"' in line for line in full) else "jsonl"
    if named in ("jsonl", "conll"):
        return named
    if named is None and looks_tagged(first):
        return "conll"
    delimiter = delimiter_in(full, named)
    if delimiter is None and named not in ("csv", "tsv"):
        raise ValueError(f"{path}: neither a table (comma, semicolon, tab or |), nor JSON, Parquet, CoNLL or SQuAD's JSON; save it as one "
                         "of these, or say what it is (prepare --format, Source(format=…))")
    return "tsv" if delimiter == "\t" or (delimiter is None and named == "tsv") else "csv"


def looks_tagged(first: Sequence[str]) -> bool:
    """A word a line with its columns, blank lines between sentences."""
    full = [line.split() for line in first if line.strip()]
    return any(not line.strip() for line in first[:-1]) and len({len(row) for row in full}) == 1 and 2 <= len(full[0]) <= 6


def delimiter_of(path: str) -> str:
    """Of a csv; a comma where nothing tells."""
    try:
        return delimiter_in([line for line in head_of(find(path)[0]) if line.strip()], "csv") or ","
    except Missing:
        return ","


def delimiter_in(lines: Sequence[str], named: str | None) -> str | None:
    """The one by which most rows have the same number of columns, two at least; in doubt a tab, a comma, a semicolon, in this order."""
    if sum("\t" in line for line in lines) > MOST * len(lines):
        return "\t"
    best, found = 0.0, None
    csv.field_size_limit(LIMIT)
    for delimiter in ",;|":
        if named is None and sum(delimiter in line for line in lines) <= MOST * len(lines):
            continue
        try:
            widths = Counter(len(row) for row in csv.reader((line + "\n" for line in lines), delimiter=delimiter) if row)
        except csv.Error:                  # a stray carriage return, a field without end
            continue
        width, count = widths.most_common(1)[0] if widths else (0, 0)
        if width > 1 and count / sum(widths.values()) > best:
            best, found = count / sum(widths.values()), delimiter
    return found


# The first line

def is_number(cell: Any) -> bool:
    """Finite."""
    try:
        return isfinite(float(cell))
    except (TypeError, ValueError, OverflowError):
        return False


def usual(name: str) -> bool:
    return name.lower().strip("#_ ") in USUAL


def is_header(first: Sequence[str], rest: Sequence[Sequence[str]], asked: Sequence[str] = (), otherwise: bool = False) -> bool:
    """Does the first line name the columns? By the names: all usual ones, or one that does not stand below it as well. By the kinds: not
    a number above numbers, short above long texts, a new word above few that repeat. `otherwise` where nothing tells."""
    if set(asked) & set(first) or all(map(usual, first)):
        return True
    if any(not cell.strip() or len(cell) > 40 or is_number(cell) for cell in first):
        return False
    columns = [[row[i] for row in rest if len(row) > i] for i in range(len(first))]
    new = [name not in column for name, column in zip(first, columns, strict=True)]
    if any(usual(name) and fresh for name, fresh in zip(first, new, strict=True)):
        return True
    if not all(new) or not rest:
        return otherwise and not rest
    numbers = [mostly_numbers(column) for column in columns]
    texts = [sum(len(cell.split()) for cell in column) > 3 * len(column) and len(name.split()) <= 3
             for name, column in zip(first, columns, strict=True)]
    repeat = [len(set(column)) <= len(column) / 3 for column in columns]
    return any(numbers) or any(texts) or any(repeat) or (otherwise and not all(" " in cell.strip() for cell in first))


def mostly_numbers(cells: Sequence[Any]) -> bool:
    """Numbers but for a few that are broken."""
    return bool(cells) and sum(map(is_number, cells)) >= MOST * len(cells)
