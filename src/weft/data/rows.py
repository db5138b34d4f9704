"""Rows of a source to columns of a shard, one small class a kind of row."""
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from .. import recipe as R
from . import sentences
from .lines import Found
from .quarantine import image_bytes, known, text_columns
from .questions import windows
from .shard import Array, texts
from .tokenizer import Tokenizer

Columns = dict[str, tuple[Array, ...]]
Text = Callable[[dict[str, Any]], str]     # from a row's cells to a text
IGNORE = -100                              # a tag that asks nothing


class Maker(Protocol):
    schema: Any

    def __call__(self, rows: list[Found]) -> Columns: ...


def maker(row: R.Row, tokenizer: Tokenizer | None, labels: tuple[str, ...] | None) -> Maker:
    if isinstance(row, R.Images):
        return Images(labels or ())
    if isinstance(row, R.Boxed):
        return Boxed(labels or ())
    assert tokenizer is not None
    match row:
        case R.Documents():
            return Documents(row, tokenizer)
        case R.Pairs():
            return Pairs(tokenizer, lambda fields: fields[row.source], lambda fields: fields[row.target])
        case R.Templated():
            return Pairs(tokenizer, row.source_text, row.target_text)
        case R.Examples():
            return Examples(row, tokenizer, labels or ())
        case R.Choices():
            return Choices(row, tokenizer)
        case R.Tagged():
            return Tagged(row, tokenizer, labels or ())
        case R.Questions():
            return Questions(row, tokenizer)


def tokens(tokenizer: Tokenizer) -> Any:
    return pa.large_list(pa.from_numpy_dtype(tokenizer.dtype))


def encoded(tokenizer: Tokenizer, held: list[str]) -> tuple[Array, Array]:
    """At least one token each: a text of which nothing is left becomes the unknown."""
    values, ends = tokenizer.encode_many(held)
    lengths = np.diff(ends, prepend=0)
    if lengths.all():
        return values, ends
    return np.insert(values, ends[lengths == 0], tokenizer.special.get("unknown", 0)), np.cumsum(np.maximum(lengths, 1))


class Documents:
    """A block that goes on in the next row has no end token yet."""

    def __init__(self, row: R.Documents, tokenizer: Tokenizer) -> None:
        self.row, self.tokenizer = row, tokenizer
        fields = [("tokens", tokens(tokenizer))]
        self.schema = pa.schema(fields + ([("sentences", pa.large_list(pa.uint32()))] if row.sentences else []))
        self.open = 0                      # tokens of the document that is not at its end
        self.stop = [tokenizer.special["end"]] if "end" in tokenizer.special else []

    def __call__(self, rows: list[Found]) -> Columns:
        blocks = [row.fields[self.row.text] for row in rows]
        parts = [sentences.split(block) for block in blocks] if self.row.sentences else [[block] for block in blocks]
        values, ends = self.tokenizer.encode_many([part for block in parts for part in block])
        last = np.cumsum([len(block) for block in parts]) - 1               # the last sentence of each block
        done = np.array([not row.more for row in rows])
        places = ends[last]                                                 # where blocks end, without end tokens
        if self.stop:
            values = np.insert(values, places[done], self.stop[0])
            places = places + np.cumsum(done)
        columns: Columns = {"tokens": (values, places[done])}
        if self.row.sentences:
            columns["sentences"] = self.sentences(parts, ends, places, done)
        return columns

    def sentences(self, parts: list[list[str]], ends: Array, places: Array, done: Array) -> tuple[Array, Array]:
        """Starts inside each document, of sentences that have tokens."""
        starts: list[Array] = []
        counts, held, first = [], 0, 0
        before = np.concatenate([[0], places])
        for i, block in enumerate(parts):
            own = np.concatenate([[ends[first - 1] if first else 0], ends[first:first + len(block)]])
            own = own - own[0] + self.open
            starts.append(own[:-1][np.diff(own) > 0])
            held, first = held + len(starts[-1]), first + len(block)
            self.open = 0 if done[i] else self.open + int(before[i + 1] - before[i])
            if done[i]:
                counts.append(held)
        return np.concatenate(starts), np.array(counts, np.int64)


class Pairs:
    def __init__(self, tokenizer: Tokenizer, source: Text, target: Text) -> None:
        self.tokenizer, self.source, self.target = tokenizer, source, target
        self.schema = pa.schema([("source", tokens(tokenizer)), ("target", tokens(tokenizer))])

    def __call__(self, rows: list[Found]) -> Columns:
        return {"source": encoded(self.tokenizer, [self.source(row.fields) for row in rows]),
                "target": encoded(self.tokenizer, [self.target(row.fields) for row in rows])}


class Examples:
    def __init__(self, row: R.Examples, tokenizer: Tokenizer, labels: tuple[str, ...]) -> None:
        self.row, self.tokenizer, self.labels = row, tokenizer, labels
        names = ["first", "second"] if row.second else ["first"]
        self.schema = pa.schema([*((name, tokens(tokenizer)) for name in names), ("label", pa.float32() if row.number else pa.int64())])

    def __call__(self, rows: list[Found]) -> Columns:
        columns: Columns = {name: encoded(self.tokenizer, [row.fields[column] for row in rows])
                            for name, column in zip(("first", "second"), text_columns(self.row), strict=False)}
        given = [row.fields[self.row.label] for row in rows]
        numbers = [float(g) for g in given] if self.row.number else [known(self.labels, g) for g in given]
        return columns | {"label": (np.array(numbers),)}


class Choices:
    def __init__(self, row: R.Choices, tokenizer: Tokenizer) -> None:
        self.row, self.tokenizer = row, tokenizer
        self.schema = pa.schema([("context", tokens(tokenizer)), ("endings", pa.large_list(tokens(tokenizer))), ("label", pa.int64())])

    def __call__(self, rows: list[Found]) -> Columns:
        names = self.row.endings
        endings = [[row.fields[name] for name in names] if len(names) > 1 else row.fields[names[0]] for row in rows]
        return {"context": encoded(self.tokenizer, [row.fields[self.row.context] for row in rows]),
                "endings": (*encoded(self.tokenizer, [e for own in endings for e in own]), np.cumsum([len(own) for own in endings])),
                "label": (np.array([int(float(row.fields[self.row.label])) for row in rows], np.int64),)}


class Tagged:
    def __init__(self, row: R.Tagged, tokenizer: Tokenizer, labels: tuple[str, ...]) -> None:
        self.row, self.tokenizer, self.labels = row, tokenizer, labels
        self.schema = pa.schema([("tokens", tokens(tokenizer)), ("tags", pa.large_list(pa.int32()))])

    def __call__(self, rows: list[Found]) -> Columns:
        """Each word is tokenised alone, so that its first piece is known."""
        gap = " " if self.tokenizer.spaced else ""
        words = [(gap if i else "") + word for row in rows for i, word in enumerate(row.fields[self.row.words])]
        values, ends = encoded(self.tokenizer, words)
        tags = np.full(len(values), IGNORE, np.int32)
        tags[np.concatenate([[0], ends[:-1]])] = [known(self.labels, tag) for row in rows for tag in row.fields[self.row.tags]]
        places = ends[np.cumsum([len(row.fields[self.row.words]) for row in rows]) - 1]
        return {"tokens": (values, places), "tags": (tags, places)}


class Questions:
    def __init__(self, row: R.Questions, tokenizer: Tokenizer) -> None:
        self.row, self.tokenizer = row, tokenizer
        kind = tokens(tokenizer)
        self.schema = pa.schema([("question", kind), ("context", kind), ("start", pa.int64()), ("end", pa.int64()),
                                 ("id", pa.large_string()), ("offsets", pa.large_list(pa.uint32()))])

    def __call__(self, rows: list[Found]) -> Columns:
        made = [window for row in rows for window in windows(row.fields, self.row, self.tokenizer)]

        def ragged(name: str) -> tuple[Array, Array]:
            held = [window[name] for window in made]
            return np.concatenate(held) if held else np.zeros(0, np.int64), np.cumsum([len(h) for h in held], dtype=np.int64)

        return {name: ragged(name) for name in ("question", "context", "offsets")} | {
            "start": (np.array([w["start"] for w in made], np.int64),), "end": (np.array([w["end"] for w in made], np.int64),),
            "id": texts([w["id"].encode() for w in made])}


class Images:
    schema = pa.schema([("image", pa.large_binary()), ("label", pa.int64())])

    def __init__(self, labels: tuple[str, ...]) -> None:
        self.labels = labels

    def __call__(self, rows: list[Found]) -> Columns:
        return {"image": texts([image_bytes(row.fields["image"]) for row in rows]),
                "label": (np.array([known(self.labels, row.fields["label"]) for row in rows], np.int64),)}


class Boxed:
    schema = pa.schema([("image", pa.large_binary()), ("boxes", pa.large_list(pa.float32())), ("labels", pa.large_list(pa.int32()))])

    def __init__(self, labels: tuple[str, ...]) -> None:
        self.labels = labels

    def __call__(self, rows: list[Found]) -> Columns:
        boxes = [np.array(row.fields["boxes"], np.float32).reshape(-1) for row in rows]
        names = [[known(self.labels, name) for name in row.fields["labels"]] for row in rows]
        return {"image": texts([image_bytes(row.fields["image"]) for row in rows]),
                "boxes": (np.concatenate(boxes), np.cumsum([len(b) for b in boxes])),
                "labels": (np.array([n for own in names for n in own], np.int32), np.cumsum([len(own) for own in names]))}
