"""Input formats of masked language modelling: the four that RoBERTa compares (arXiv:1907.11692,
section 4.2), and BERT's pairs (arXiv:1810.04805, section 3.1, task 2).
"""

from typing import Any, NamedTuple

import numpy as np

from ..nn.kernels.cross_entropy import IGNORE_INDEX
from .base import ArrayRow, LengthLimitedSamples, concatenate_ids

PAIRS = ("segment-pair", "sentence-pair")
TRIES = 10_000  # samples to search for a pair: enough where one in a thousand has one


class SentenceBounds(NamedTuple):
    """Start and stop of each sentence of a sample, and of its document."""

    tokens: np.ndarray
    start: np.ndarray
    stop: np.ndarray
    document_start: np.ndarray
    document_stop: np.ndarray


def sentences(sample: dict[str, Any]) -> SentenceBounds:
    tokens = sample["tokens"]
    documents = document_starts(sample["documents"])
    start = np.union1d(documents, sample["sentences"]).astype(np.int64)
    stop = np.append(start[1:], len(tokens))
    number = np.searchsorted(documents, start, side="right")
    return SentenceBounds(
        tokens, start, stop, documents[number - 1], np.append(documents, len(tokens))[number]
    )


class SegmentPairs(NamedTuple):
    """The pairs of neighbouring segments in a sample: tokens [start, boundary) and [boundary, stop)
    of each pair.
    """

    tokens: np.ndarray
    start: np.ndarray
    boundary: np.ndarray
    stop: np.ndarray

    def second(self, i: int) -> np.ndarray:
        return self.tokens[self.boundary[i] : self.stop[i]]


def document_starts(documents: np.ndarray) -> np.ndarray:
    """Return the starts of documents; the first token always starts one."""
    return np.union1d([0], documents).astype(np.int64)


class TextInput:
    """Convert a sample into an unmasked row: `tokens` and, where the input has them,
    `tokens_document_ids`, `segments` and `labels_next`.
    """

    def __init__(self, kind: str, bos_id: int, eos_id: int, next_sentence: bool = False) -> None:
        self.kind = kind
        self.bos_id = bos_id
        self.eos_id = eos_id
        self.next_sentence = next_sentence
        self.special_tokens = 3 if kind in PAIRS else 2

    def __call__(
        self, samples: LengthLimitedSamples, index: int, rng: np.random.Generator
    ) -> ArrayRow:
        if self.kind in PAIRS:
            return self.pair(samples, index, rng)
        sample = samples[index]
        return (
            self.full(sample)
            if self.kind == "full-sentences"
            else self.separate_documents(sample, samples.length)
        )

    def full(self, sample: dict[str, Any]) -> ArrayRow:
        """Return one sequence; documents are separated by the end token of the first."""
        return {
            "tokens": concatenate_ids([self.bos_id], self.bare(sample["tokens"]), [self.eos_id])
        }

    def separate_documents(self, sample: dict[str, Any], length: int) -> ArrayRow:
        """Return one sequence per document; together they fill a row, and attention stays within
        each.
        """
        starts = document_starts(sample["documents"])
        at = starts + np.arange(len(starts))
        # a later document with no token between its special tokens is dropped
        stop = min([length, *at[at > length - 3][:1]])
        row = np.insert(np.asarray(sample["tokens"], np.int64), starts, self.bos_id)[:stop]
        if row[-1] != self.eos_id:
            row = concatenate_ids(row[: length - 1], [self.eos_id])
        number = np.zeros(len(row), np.int64)
        number[at[at < len(row)]] = 1
        return {"tokens": row, "tokens_document_ids": number.cumsum()}

    def pair(self, samples: LengthLimitedSamples, index: int, rng: np.random.Generator) -> ArrayRow:
        """Return A and what follows it (`labels_next` 0) or, with probability 1/2, a segment of
        another sample (1). Both candidates for B are sampled alike and truncated to the shorter one
        before the choice, so that no length depends on it.
        """
        index, here = self.find_pairs(samples, index, rng)
        i = int(rng.integers(len(here.boundary)))
        other = False
        b = here.second(i)
        if self.next_sentence:
            count = len(samples)
            there = self.find_pairs(
                samples, (index + 1 + int(rng.integers(count - 1))) % count, rng, avoid=index
            )[1]
            i, j = closest_lengths(here.stop - here.boundary, there.stop - there.boundary, rng)
            both = (here.second(i), there.second(j))
            other = bool(rng.random() < 0.5)
            b = both[other][: min(map(len, both))]
        a, b = truncate_pair(
            here.tokens[here.start[i] : here.boundary[i]],
            b,
            samples.length - self.special_tokens,
            rng,
        )
        row: ArrayRow = {
            "tokens": concatenate_ids([self.bos_id], a, [self.eos_id], b, [self.eos_id]),
            "segments": np.repeat(np.arange(2), (len(a) + 2, len(b) + 1)),
        }
        if self.next_sentence:  # scored at the first token of the row
            row["labels_next"] = concatenate_ids(
                [other], np.full(len(row["tokens"]) - 1, IGNORE_INDEX)
            )
        return row

    def find_pairs(
        self, samples: LengthLimitedSamples, index: int, rng: np.random.Generator, avoid: int = -1
    ) -> tuple[int, "SegmentPairs"]:
        """Return the sample and its pairs; a random other sample if it has no two consecutive
        sentences.
        """
        for _ in range(TRIES):
            if index != avoid and len((pairs := self.pairs(samples[index])).boundary):
                return index, pairs
            index = int(rng.integers(len(samples)))
        raise ValueError(
            f"input_format = {self.kind!r} needs documents with at least two sentences, but "
            f"almost no sample has one; separate documents, not sentences, by blank lines, or "
            f"use input_format = 'full-sentences'"
        )

    def pairs(self, sample: dict[str, Any]) -> "SegmentPairs":
        """Return pairs of a sentence and the next one or, for segments, of everything before and
        after a boundary, within a document.
        """
        here = sentences(sample)
        whole = self.kind == "segment-pair"
        i = np.flatnonzero(here.stop < here.document_stop)
        start, stop = (
            (here.document_start[i], here.document_stop[i])
            if whole
            else (here.start[i], here.stop[i + 1])
        )
        # Without its end token: the format adds its own
        stop = np.where(here.tokens[stop - 1] == self.eos_id, stop - 1, stop)
        some = here.stop[i] < stop
        return SegmentPairs(here.tokens, start[some], here.stop[i][some], stop[some])

    def bare(self, tokens: np.ndarray) -> np.ndarray:
        """Return the tokens without the end token of a document, since the format adds its own."""
        return tokens[:-1] if len(tokens) and tokens[-1] == self.eos_id else tokens


def closest_lengths(
    ours: np.ndarray, theirs: np.ndarray, rng: np.random.Generator
) -> tuple[int, int]:
    """Return one index of each whose lengths differ least, at random among equals, so that the
    longer side reveals nothing.
    """
    gap = np.abs(ours[:, None] - theirs[None])
    near = np.flatnonzero(gap == gap.min())
    i, j = divmod(int(near[rng.integers(len(near))]), len(theirs))
    return i, j


def truncate_pair(
    a: np.ndarray, b: np.ndarray, capacity: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Remove tokens from a random end of the longer side until both sides fit."""
    if len(a) + len(b) <= capacity:
        return a, b
    keep_a = min(len(a), max(capacity - len(b), capacity - capacity // 2))
    return truncate_randomly(a, keep_a, rng), truncate_randomly(b, capacity - keep_a, rng)


def truncate_randomly(tokens: np.ndarray, keep: int, rng: np.random.Generator) -> np.ndarray:
    front = rng.binomial(len(tokens) - keep, 0.5)
    return tokens[front : front + keep]
