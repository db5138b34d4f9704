"""The four inputs that RoBERTa compares (arXiv:1907.11692, section 4.2), and BERT's pairs (arXiv:1810.04805, section 3.1, task 2)."""
from typing import Any, NamedTuple

import numpy as np

from .base import IGNORE, Reader, Row, joined

PAIRS = ("segment-pair", "sentence-pair")
TRIES = 10_000                             # samples looked at for one that holds a pair: enough where one in a thousand does


class Sentences(NamedTuple):
    """The sentences of a sample: where each starts and stops, and where its document does."""
    tokens: np.ndarray
    start: np.ndarray
    stop: np.ndarray
    document_start: np.ndarray
    document_stop: np.ndarray


def sentences(sample: dict[str, Any]) -> Sentences:
    tokens, documents = sample["tokens"], begins(sample["documents"])
    start = np.union1d(documents, sample["sentences"]).astype(np.int64)
    stop = np.append(start[1:], len(tokens))
    number = np.searchsorted(documents, start, side="right")
    return Sentences(tokens, start, stop, documents[number - 1], np.append(documents, len(tokens))[number])


class Pairs(NamedTuple):
    """What two neighbours a sample offers: tokens [start, border) and [border, stop) of each pair."""
    tokens: np.ndarray
    start: np.ndarray
    border: np.ndarray
    stop: np.ndarray

    def second(self, i: int) -> np.ndarray:
        return self.tokens[self.border[i]:self.stop[i]]


def begins(documents: np.ndarray) -> np.ndarray:
    """Starts of documents; whatever comes first belongs to one too."""
    return np.union1d([0], documents).astype(np.int64)


class Format:
    """From a sample to an unmasked row: `tokens` and, where the input has them, `tokens_keep`, `segments` and `labels_next`."""

    def __init__(self, kind: str, begin: int, end: int, next_sentence: bool = False) -> None:
        self.kind, self.begin, self.end, self.next_sentence = kind, begin, end, next_sentence
        self.marks = 3 if kind in PAIRS else 2

    def __call__(self, samples: Reader, index: int, draw: np.random.Generator) -> Row:
        if self.kind in PAIRS:
            return self.pair(samples, index, draw)
        sample = samples[index]
        return self.full(sample) if self.kind == "full-sentences" else self.apart(sample, samples.length)

    def full(self, sample: dict[str, Any]) -> Row:
        """Between two documents stands the first one's own end token."""
        return {"tokens": joined([self.begin], self.bare(sample["tokens"]), [self.end])}

    def apart(self, sample: dict[str, Any], length: int) -> Row:
        """Every document its own sequence; together they fill a row and do not see each other."""
        starts = begins(sample["documents"])
        at = starts + np.arange(len(starts))
        stop = min([length, *at[at > length - 3][:1]])         # a later document has no room for a token between two marks
        row = np.insert(np.asarray(sample["tokens"], np.int64), starts, self.begin)[:stop]
        if row[-1] != self.end:
            row = joined(row[:length - 1], [self.end])
        number = np.zeros(len(row), np.int64)
        number[at[at < len(row)]] = 1
        return {"tokens": row, "tokens_keep": number.cumsum()}

    def pair(self, samples: Reader, index: int, draw: np.random.Generator) -> Row:
        """A and what follows it (`labels_next` 0) or, by a fair coin, what follows somewhere else (1). Both candidates for B are drawn
        alike and cut to the shorter one before the coin falls, so that no length depends on it."""
        index, here = self.followed(samples, index, draw)
        i, other = int(draw.integers(len(here.border))), False
        b = here.second(i)
        if self.next_sentence:
            many = len(samples)
            there = self.followed(samples, (index + 1 + int(draw.integers(many - 1))) % many, draw, avoid=index)[1]
            i, j = closest(here.stop - here.border, there.stop - there.border, draw)
            both, other = (here.second(i), there.second(j)), bool(draw.random() < 0.5)
            b = both[other][:min(map(len, both))]
        a, b = fit(here.tokens[here.start[i]:here.border[i]], b, samples.length - self.marks, draw)
        row: Row = {"tokens": joined([self.begin], a, [self.end], b, [self.end]),
                    "segments": np.repeat(np.arange(2), (len(a) + 2, len(b) + 1))}
        if self.next_sentence:             # asked at the first token, wherever a batch puts it
            row["labels_next"] = joined([other], np.full(len(row["tokens"]) - 1, IGNORE))
        return row

    def followed(self, samples: Reader, index: int, draw: np.random.Generator, avoid: int = -1) -> tuple[int, "Pairs"]:
        """The sample, or where none of its sentences is followed by another, one drawn at random in which one is."""
        for _ in range(TRIES):
            if index != avoid and len((found := self.pairs(samples[index])).border):
                return index, found
            index = int(draw.integers(len(samples)))
        raise ValueError(f"input = {self.kind!r} needs documents with at least two sentences, and almost no sample has one; separate "
                         "documents, not sentences, by blank lines, or use input = 'full-sentences'")

    def pairs(self, sample: dict[str, Any]) -> "Pairs":
        """Of a sentence and the next one or, for segments, of all that is before and behind, inside a document."""
        here, whole = sentences(sample), self.kind == "segment-pair"
        i = np.flatnonzero(here.stop < here.document_stop)
        start, stop = (here.document_start[i], here.document_stop[i]) if whole else (here.start[i], here.stop[i + 1])
        stop = stop - (here.tokens[stop - 1] == self.end)      # the format sets its own
        some = here.stop[i] < stop
        return Pairs(here.tokens, start[some], here.stop[i][some], stop[some])

    def bare(self, tokens: np.ndarray) -> np.ndarray:
        """Without the end token that closes a document: the format sets its own."""
        return tokens[:-1] if len(tokens) and tokens[-1] == self.end else tokens


def closest(ours: np.ndarray, theirs: np.ndarray, draw: np.random.Generator) -> tuple[int, int]:
    """One of each whose lengths differ least: neither side is preferred, so which of the two is the longer says nothing."""
    gap = np.abs(ours[:, None] - theirs[None])
    near = np.flatnonzero(gap == gap.min())
    i, j = divmod(int(near[draw.integers(len(near))]), len(theirs))
    return i, j


def fit(a: np.ndarray, b: np.ndarray, room: int, draw: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """The longer side loses tokens, at its front or its back by a coin each, until both fit."""
    if len(a) + len(b) <= room:
        return a, b
    keep_a = min(len(a), max(room - len(b), room - room // 2))
    return cut(a, keep_a, draw), cut(b, room - keep_a, draw)


def cut(tokens: np.ndarray, keep: int, draw: np.random.Generator) -> np.ndarray:
    front = draw.binomial(len(tokens) - keep, 0.5)
    return tokens[front:front + keep]
