"""Encoders, one per row schema: from rows of a source to columns of a shard."""

from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from ... import recipe as R
from ...recipe.data.cells import label_index
from ...recipe.data.formats import SourceRow
from ...support.registry import implementation
from ..reading import sentences
from ..reading.quarantine import image_bytes
from ..tokenizing.question_windows import question_windows
from ..tokenizing.tokenizer import Tokenizer
from .shard import Array, bytes_column

Columns = dict[str, tuple[Array, ...]]
IGNORE = -100  # no label


class RowEncoder(Protocol):
    """Base of the encoders, registered per row schema: built once per shard, called with checked
    rows."""

    schema: Any  # of the shard

    def __init__(
        self, row: Any, tokenizer: Tokenizer | None, labels: tuple[str, ...] | None
    ) -> None: ...

    def __call__(self, rows: list[SourceRow]) -> Columns: ...


def build_encoder(
    row: R.RowSchema, tokenizer: Tokenizer | None, labels: tuple[str, ...] | None
) -> RowEncoder:
    encoder: RowEncoder = implementation(row)(row, tokenizer, labels)
    return encoder


def token_list_type(tokenizer: Tokenizer) -> Any:
    return pa.large_list(pa.from_numpy_dtype(tokenizer.dtype))


def encode_non_empty(tokenizer: Tokenizer, texts: list[str]) -> tuple[Array, Array]:
    """Return at least one token per text: an empty text becomes the unknown token."""
    values, ends = tokenizer.encode_many(texts)
    lengths = np.diff(ends, prepend=0)
    if lengths.all():
        return values, ends
    return np.insert(values, ends[lengths == 0], tokenizer.special.get("unk", 0)), np.cumsum(
        np.maximum(lengths, 1)
    )


class DocumentEncoder:
    """Encodes documents; a row that continues in the next one has no end token yet."""

    def __init__(
        self, row: R.Documents, tokenizer: Tokenizer, labels: tuple[str, ...] | None = None
    ) -> None:
        self.row = row
        self.tokenizer = tokenizer
        fields = [("tokens", token_list_type(tokenizer))]
        self.schema = pa.schema(
            fields
            + ([("sentences", pa.large_list(pa.uint32()))] if row.sentence_boundaries else [])
        )
        self.open = 0  # tokens of an unfinished document
        self.stop = [tokenizer.special["eos"]] if "eos" in tokenizer.special else []

    def __call__(self, rows: list[SourceRow]) -> Columns:
        blocks = [row.fields[self.row.text] for row in rows]
        parts = (
            [sentences.split_sentences(block) for block in blocks]
            if self.row.sentence_boundaries
            else [[block] for block in blocks]
        )
        values, ends = self.tokenizer.encode_many([part for block in parts for part in block])
        last = np.cumsum([len(block) for block in parts]) - 1  # the last sentence of each block
        done = np.array([not row.continues for row in rows])
        places = ends[last]  # the ends of blocks, without end tokens
        if self.stop:
            values = np.insert(values, places[done], self.stop[0])
            places = places + np.cumsum(done)
        columns: Columns = {"tokens": (values, places[done])}
        if self.row.sentence_boundaries:
            columns["sentences"] = self.sentences(parts, ends, places, done)
        return columns

    def sentences(
        self, parts: list[list[str]], ends: Array, places: Array, done: Array
    ) -> tuple[Array, Array]:
        """Return the starts of non-empty sentences within each document."""
        starts: list[Array] = []
        counts = []
        sentence_count = 0
        first = 0
        before = np.concatenate([[0], places])
        for i, block in enumerate(parts):
            sentence_ends = np.concatenate(
                [[ends[first - 1] if first else 0], ends[first : first + len(block)]]
            )
            sentence_ends = sentence_ends - sentence_ends[0] + self.open
            starts.append(sentence_ends[:-1][np.diff(sentence_ends) > 0])
            sentence_count += len(starts[-1])
            first += len(block)
            self.open = 0 if done[i] else self.open + int(before[i + 1] - before[i])
            if done[i]:
                counts.append(sentence_count)
        return np.concatenate(starts), np.array(counts, np.int64)


class PairEncoder:
    def __init__(
        self,
        row: R.SourceTargetPairs | R.TemplatedPairs,
        tokenizer: Tokenizer,
        labels: tuple[str, ...] | None = None,
    ) -> None:
        self.row = row
        self.tokenizer = tokenizer
        self.schema = pa.schema(
            [("source", token_list_type(tokenizer)), ("target", token_list_type(tokenizer))]
        )

    def __call__(self, rows: list[SourceRow]) -> Columns:
        return {
            "source": encode_non_empty(
                self.tokenizer, [self.row.source_text(row.fields) for row in rows]
            ),
            "target": encode_non_empty(
                self.tokenizer, [self.row.target_text(row.fields) for row in rows]
            ),
        }


class LabelledTextEncoder:
    def __init__(
        self, row: R.LabelledTexts, tokenizer: Tokenizer, labels: tuple[str, ...] | None
    ) -> None:
        self.row = row
        self.tokenizer = tokenizer
        self.labels = labels or ()
        names = ["first", "second"] if row.second_text else ["first"]
        self.schema = pa.schema(
            [
                *((name, token_list_type(tokenizer)) for name in names),
                ("label", pa.float32() if row.numeric_label else pa.int64()),
            ]
        )

    def __call__(self, rows: list[SourceRow]) -> Columns:
        columns: Columns = {
            name: encode_non_empty(self.tokenizer, [row.fields[column] for row in rows])
            for name, column in zip(("first", "second"), self.row.text_columns, strict=False)
        }
        labels = [row.fields[self.row.label] for row in rows]
        numbers = (
            [float(g) for g in labels]
            if self.row.numeric_label
            else [label_index(self.labels, g) for g in labels]
        )
        return columns | {"label": (np.array(numbers),)}


class ChoiceEncoder:
    def __init__(
        self, row: R.ChoiceQuestions, tokenizer: Tokenizer, labels: tuple[str, ...] | None = None
    ) -> None:
        self.row = row
        self.tokenizer = tokenizer
        self.schema = pa.schema(
            [
                ("context", token_list_type(tokenizer)),
                ("endings", pa.large_list(token_list_type(tokenizer))),
                ("label", pa.int64()),
            ]
        )

    def __call__(self, rows: list[SourceRow]) -> Columns:
        names = self.row.endings
        endings = [
            [row.fields[name] for name in names] if len(names) > 1 else row.fields[names[0]]
            for row in rows
        ]
        return {
            "context": encode_non_empty(
                self.tokenizer, [row.fields[self.row.context] for row in rows]
            ),
            "endings": (
                *encode_non_empty(
                    self.tokenizer, [e for row_endings in endings for e in row_endings]
                ),
                np.cumsum([len(row_endings) for row_endings in endings]),
            ),
            "label": (
                np.array([int(float(row.fields[self.row.label])) for row in rows], np.int64),
            ),
        }


class TaggedWordEncoder:
    def __init__(
        self, row: R.TaggedWords, tokenizer: Tokenizer, labels: tuple[str, ...] | None
    ) -> None:
        self.row = row
        self.tokenizer = tokenizer
        self.labels = labels or ()
        self.schema = pa.schema(
            [("tokens", token_list_type(tokenizer)), ("tags", pa.large_list(pa.int32()))]
        )

    def __call__(self, rows: list[SourceRow]) -> Columns:
        """Tokenise each word alone, so that its first piece is known."""
        gap = " " if self.tokenizer.words_start_with_space else ""
        words = [
            (gap if i else "") + word
            for row in rows
            for i, word in enumerate(row.fields[self.row.words])
        ]
        values, ends = encode_non_empty(self.tokenizer, words)
        tags = np.full(len(values), IGNORE, np.int32)
        tags[np.concatenate([[0], ends[:-1]])] = [
            label_index(self.labels, tag) for row in rows for tag in row.fields[self.row.tags]
        ]
        places = ends[np.cumsum([len(row.fields[self.row.words]) for row in rows]) - 1]
        return {"tokens": (values, places), "tags": (tags, places)}


class QuestionEncoder:
    def __init__(
        self, row: R.ContextQuestions, tokenizer: Tokenizer, labels: tuple[str, ...] | None = None
    ) -> None:
        self.row = row
        self.tokenizer = tokenizer
        kind = token_list_type(tokenizer)
        self.schema = pa.schema(
            [
                ("question", kind),
                ("context", kind),
                ("start", pa.int64()),
                ("end", pa.int64()),
                ("id", pa.large_string()),
                ("offsets", pa.large_list(pa.uint32())),
            ]
        )

    def __call__(self, rows: list[SourceRow]) -> Columns:
        windows = [
            window
            for row in rows
            for window in question_windows(row.fields, self.row, self.tokenizer)
        ]

        def ragged(name: str) -> tuple[Array, Array]:
            values = [window[name] for window in windows]
            return np.concatenate(values) if values else np.zeros(0, np.int64), np.cumsum(
                [len(h) for h in values], dtype=np.int64
            )

        return {name: ragged(name) for name in ("question", "context", "offsets")} | {
            "start": (np.array([w["start"] for w in windows], np.int64),),
            "end": (np.array([w["end"] for w in windows], np.int64),),
            "id": bytes_column([w["id"].encode() for w in windows]),
        }


def image_column(rows: list[SourceRow], name: str) -> tuple[Array, Array]:
    from ..images.images import stored_image

    return bytes_column([stored_image(image_bytes(row.fields[name])) for row in rows])


class ImageEncoder:
    schema = pa.schema([("image", pa.large_binary()), ("label", pa.int64())])

    def __init__(
        self, row: R.LabelledImages, tokenizer: Tokenizer | None, labels: tuple[str, ...] | None
    ) -> None:
        self.row = row
        self.labels = labels or ()

    def __call__(self, rows: list[SourceRow]) -> Columns:
        classes = [label_index(self.labels, row.fields[self.row.label]) for row in rows]
        return {
            "image": image_column(rows, self.row.image),
            "label": (np.array(classes, np.int64),),
        }


class BoxEncoder:
    schema = pa.schema(
        [
            ("image", pa.large_binary()),
            ("boxes", pa.large_list(pa.float32())),
            ("labels", pa.large_list(pa.int32())),
        ]
    )

    def __init__(
        self, row: R.RowSchema, tokenizer: Tokenizer | None, labels: tuple[str, ...] | None
    ) -> None:
        self.labels = labels or ()

    def __call__(self, rows: list[SourceRow]) -> Columns:
        boxes = [np.array(row.fields["boxes"], np.float32).reshape(-1) for row in rows]
        names = [[label_index(self.labels, name) for name in row.fields["labels"]] for row in rows]
        return {
            "image": image_column(rows, "image"),
            "boxes": (np.concatenate(boxes), np.cumsum([len(b) for b in boxes])),
            "labels": (
                np.array([n for row_names in names for n in row_names], np.int32),
                np.cumsum([len(row_names) for row_names in names]),
            ),
        }
