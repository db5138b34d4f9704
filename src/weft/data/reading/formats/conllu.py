"""Sentences with dependency relations: CoNLL-U (universaldependencies.org/format.html)."""

from pathlib import Path
from typing import NamedTuple

FIELDS = 10
ID = 0
FORM = 1
HEAD = 6
DEPREL = 7
MISC = 9


class DependencySentence(NamedTuple):
    """Words, each with its head and its relation to it."""

    words: tuple[str, ...]
    heads: tuple[int, ...]  # the number of the head's word, from 0; -1 for the root
    relations: tuple[str, ...]
    spaces: tuple[bool, ...]  # whether a space follows

    @property
    def text(self) -> str:
        joined = (w + " " * after for w, after in zip(self.words, self.spaces, strict=True))
        return "".join(joined).rstrip()

    @property
    def spans(self) -> list[tuple[int, int]]:
        """The characters [start, end) of each word in the text."""
        spans = []
        start = 0
        for word, after in zip(self.words, self.spaces, strict=True):
            spans.append((start, start + len(word)))
            start += len(word) + after
        return spans


def read_conllu(path: str | Path) -> list[DependencySentence]:
    """Read the sentences of a file. Words that stand for several ("1-2") and empty nodes ("1.1")
    are left out: their words are there.

    Raises:
        ValueError: for a line that cannot be read, with its number."""
    sentences: list[DependencySentence] = []
    rows: list[list[str]] = []
    for number, line in enumerate([*Path(path).read_text("utf-8").splitlines(), ""], 1):
        if not line.strip():
            if rows:
                sentences.append(read_sentence(rows, f"{path}, before line {number}"))
            rows = []
        elif not line.startswith("#"):
            fields = line.split("\t")
            if len(fields) != FIELDS:
                raise ValueError(
                    f"{path}, line {number}: {len(fields)} fields instead of {FIELDS}; separate "
                    "them by tabs"
                )
            if fields[ID].isdigit():
                rows.append(fields)
    if not sentences:
        raise ValueError(f"{path} contains no sentence; give a CoNLL-U file")
    return sentences


def read_sentence(rows: list[list[str]], place: str) -> DependencySentence:
    numbers = {row[ID]: i for i, row in enumerate(rows)} | {"0": -1}
    unknown = next((row[HEAD] for row in rows if row[HEAD] not in numbers), None)
    if unknown is not None:
        raise ValueError(f"{place}: {unknown!r} is the head of a word, and no word has that number")
    return DependencySentence(
        tuple(row[FORM] for row in rows),
        tuple(numbers[row[HEAD]] for row in rows),
        tuple(row[DEPREL] for row in rows),
        tuple("SpaceAfter=No" not in row[MISC].split("|") for row in rows),
    )
