"""The four inputs that RoBERTa compares (arXiv:1907.11692, section 4.2), and BERT's pairs (arXiv:1810.04805, section 3.1, task 2)."""
from typing import Any, NamedTuple

import numpy as np

from .base import IGNORE, Reader, Row, joined

PAIRS = ("segment-pair", "sentence-pair")


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
        """A and what follows it (`labels_next` 0) or, by a coin, what does not (1); nothing follows a lone sentence."""
        here, room, whole = sentences(samples[index]), samples.length - self.marks, self.kind == "segment-pair"
        other = self.next_sentence and draw.random() < 0.5
        followed = np.flatnonzero(here.stop < here.document_stop)
        i = followed[draw.integers(len(followed))] if len(followed) else draw.integers(len(here.start))
        a = here.tokens[here.document_start[i] if whole else here.start[i]:here.stop[i]]
        b = here.tokens[here.stop[i]:here.document_stop[i] if whole else here.stop[i + 1]] if len(followed) else here.tokens[:0]
        if other or not len(followed):
            other = True
            b = self.stranger(samples, index, draw, (len(b) or room - len(a)) if whole else 0)
        a, b = fit(self.bare(a), self.bare(b), room, draw)
        row: Row = {"tokens": joined([self.begin], a, [self.end], b, [self.end]),
                    "segments": np.repeat(np.arange(2), (len(a) + 2, len(b) + 1))}
        if self.next_sentence:             # asked at the first token, wherever a batch puts it
            row["labels_next"] = joined([other], np.full(len(row["tokens"]) - 1, IGNORE))
        return row

    def stranger(self, samples: Reader, index: int, draw: np.random.Generator, long: int) -> np.ndarray:
        """Sentences of another sample, one or about as `long` as those they stand for: length must not tell them apart."""
        many = len(samples)
        there = sentences(samples[(index + 1 + int(draw.integers(many - 1))) % many if many > 1 else index])
        room = there.document_stop - there.start
        fits = np.flatnonzero(room >= min(long, room.max()))
        i = fits[draw.integers(len(fits))]
        stops = there.stop[i:np.searchsorted(there.stop, there.document_stop[i]) + 1] if long else there.stop[i:i + 1]
        return there.tokens[there.start[i]:stops[np.abs(stops - there.start[i] - long).argmin()]]

    def bare(self, tokens: np.ndarray) -> np.ndarray:
        """Without the end token that closes a document: the format sets its own."""
        return tokens[:-1] if len(tokens) and tokens[-1] == self.end else tokens


def fit(a: np.ndarray, b: np.ndarray, room: int, draw: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """The longer side loses tokens, at its front or its back by a coin each, until both fit."""
    if len(a) + len(b) <= room:
        return a, b
    keep_a = min(len(a), max(room - len(b), room - room // 2))
    return cut(a, keep_a, draw), cut(b, room - keep_a, draw)


def cut(tokens: np.ndarray, keep: int, draw: np.random.Generator) -> np.ndarray:
    front = draw.binomial(len(tokens) - keep, 0.5)
    return tokens[front:front + keep]
