"""From samples to a batch: rows of different length in one array, padded, or several in one row.

A batch says what is padding in one of two fields per stream: `<stream>_document_ids`, the documents
of a row as 1, 2, 3, … with 0 at padding, where rows hold several; else `<stream>_attention_mask`,
False at padding, where there is any. `attention_mask` reads both."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Protocol

import numpy as np

from ...support.order import SampleGenerators
from .batching import SampleIndex
from .mixture import locate_sample
from .samples import Samples

SAMPLES = "samples"  # the field of a batch that says which sample a row is: dropout is keyed by it
IGNORE_INDEX = -100  # the label where nothing is asked; as in layers.loss, which needs torch
ArrayRow = dict[str, np.ndarray]
RaggedFields = dict[str, tuple[str, int]]  # ragged field -> its stream and what pads it


class RowBuilder(Protocol):
    """From a sample to a row; see `tasks.base`."""

    fields: RaggedFields
    terms: tuple[str, ...]
    same_every_epoch: bool

    def __call__(self, samples: Any, index: int, rng: np.random.Generator) -> ArrayRow: ...
    def loss_counts(self, batch: Any) -> dict[str, int]: ...


def build_batch(
    samples: Samples,
    preprocess: RowBuilder,
    groups: Sequence[Sequence[SampleIndex]],
    draws: SampleGenerators,
    packed: int | None = None,
) -> ArrayRow:
    """The batch of these groups of samples: a group a row."""
    rows = [[build_row(samples, preprocess, pick, draws) for pick in group] for group in groups]
    if packed is None:
        return collate([row for (row,) in rows], preprocess.fields) | {
            SAMPLES: np.array([sample_number(pick) for (pick,) in groups])
        }
    batch = pack(rows, preprocess.fields, packed)
    return batch | {SAMPLES: number_documents(groups, rows, preprocess.fields)}


def sample_number(pick: SampleIndex) -> int:
    """One whole number for a sample in an epoch, below 2 ** 56."""
    return (int(pick.epoch) & 0xFFFF) << 40 | int(pick.index)


def number_documents(
    groups: Sequence[Sequence[SampleIndex]], rows: list[list[ArrayRow]], fields: RaggedFields
) -> np.ndarray:
    """(row, document): the sample of each document of a packed row, and which of the sample's
    documents it is; column 0 is padding."""
    lines = [
        [
            0,
            *(
                part << 56 | sample_number(pick)
                for pick, row in zip(group, parts, strict=True)
                for part in range(count_documents(row, fields))
            ),
        ]
        for group, parts in zip(groups, rows, strict=True)
    ]
    numbers = np.zeros((len(lines), max(map(len, lines))), np.int64)
    for line, numbered_rows in zip(numbers, lines, strict=True):
        line[: len(numbered_rows)] = numbered_rows
    return numbers


def build_row(
    samples: Samples, preprocess: RowBuilder, pick: SampleIndex, draws: SampleGenerators
) -> ArrayRow:
    try:
        source, index = locate_sample(samples, pick.index)
        return preprocess(
            source,
            index,
            draws.generator_for(0 if preprocess.same_every_epoch else pick.epoch, pick.index),
        )
    except Exception as error:
        raise ValueError(
            f"sample {pick.index} of epoch {pick.epoch} gives no row: {type(error).__name__}: "
            f"{error}"
        ) from error


def collate(rows: list[ArrayRow], fields: RaggedFields) -> ArrayRow:
    """A row per sample, padded to the longest; a stream has a mask only where something of it is
    padded."""
    batch, bounds = lay_out_rows([[row] for row in rows], fields)
    for stream, bound in bounds.items():
        ends = np.array(bound)[:, 1]
        if f"{stream}_document_ids" not in fields and ends.min() < ends.max():
            batch[f"{stream}_attention_mask"] = np.arange(ends.max()) < ends[:, None]
    return batch


def pack(groups: list[list[ArrayRow]], fields: RaggedFields, length: int) -> ArrayRow:
    """A row per group, its samples end to end, each a document of its own in every stream.

    Rows are `length` wide, more only if samples turned out longer than their reader had said."""
    groups = [number_packed_rows(group, fields) for group in groups]
    document_ids = {f"{stream}_document_ids": (stream, 0) for stream, _ in fields.values()}
    return lay_out_rows(groups, fields | document_ids, length)[0]


def number_packed_rows(group: list[ArrayRow], fields: RaggedFields) -> list[ArrayRow]:
    """The samples of a row with their document ids; a sample of several documents takes several
    numbers."""
    numbered = []
    first = 1
    for row in group:
        ids = {}
        for name, (stream, _) in fields.items():
            field = f"{stream}_document_ids"
            sample_ids = np.asarray(row.get(field, np.ones(len(row[name]), np.int64)))
            ids[field] = np.where(sample_ids > 0, sample_ids + first - 1, 0)
        numbered.append(row | ids)
        first += count_documents(row, fields)
    return numbered


def attention_mask(batch: Any, stream: str) -> Any:
    """False at the padding of a stream; None where it has none."""
    document_ids = batch.get(f"{stream}_document_ids")
    return batch.get(f"{stream}_attention_mask") if document_ids is None else document_ids != 0


def count_documents(row: ArrayRow, fields: RaggedFields) -> int:
    """Of one sample: as many as its document ids say."""
    return max(
        (
            int(row[f"{stream}_document_ids"].max(initial=0))
            if f"{stream}_document_ids" in row
            else min(len(row[name]), 1)
            for name, (stream, _) in fields.items()
        ),
        default=1,
    )


def lay_out_rows(
    groups: list[list[ArrayRow]], fields: RaggedFields, width: int = 0
) -> tuple[ArrayRow, dict[str, list[list[int]]]]:
    """The arrays, at least `width` wide, and where in each row the samples of each stream meet."""
    batch = {}
    bounds = {
        stream: [[0, *accumulate(len(row[name]) for row in group)] for group in groups]
        for name, (stream, _) in fields.items()
    }
    for name, (stream, pad) in fields.items():
        wide = max(width, *(bound[-1] for bound in bounds[stream]))
        batch[name] = out = np.full((len(groups), wide), pad, batch_dtype(groups[0][0][name].dtype))
        for line, group, bound in zip(out, groups, bounds[stream], strict=True):
            for row, start, stop in zip(group, bound, bound[1:], strict=False):
                assert len(row[name]) == stop - start, (
                    f"{name} has {len(row[name])} values, but its stream {stream} has "
                    f"{stop - start}; make them equal"
                )
                line[start:stop] = row[name]
    rows = [row for group in groups for row in group]
    for name in rows[0].keys() - fields.keys():
        batch |= stack_padded(name, [np.asarray(row[name]) for row in rows])
    for name in [n for n in batch if n.startswith("labels") and batch[n].dtype == np.int64]:
        batch[f"{name}_at"] = np.flatnonzero(batch[name] != IGNORE_INDEX)
    return batch, bounds


def stack_padded(name: str, arrays: list[np.ndarray]) -> ArrayRow:
    """Arrays of one batch, padded at their ends to the largest: labels with what nothing asks, all
    else with zeros.

    Images (channels, rows, columns) of unequal size get a mask (rows, columns) too, False at
    padding."""
    shapes = np.array([array.shape for array in arrays]).reshape(len(arrays), -1)
    size = shapes.max(0)
    dtype = batch_dtype(arrays[0].dtype)
    if (shapes == size).all():
        return {name: np.stack(arrays).astype(dtype, copy=False)}
    pad = IGNORE_INDEX if name.startswith("labels") else 0
    padded = np.full((len(arrays), *size), pad, dtype)
    for line, array in zip(padded, arrays, strict=True):
        line[tuple(map(slice, array.shape))] = array
    if len(size) != 3:
        return {name: padded}
    rows, columns = (
        np.arange(n) < ends[:, None] for n, ends in zip(size[1:], shapes.T[1:], strict=True)
    )
    return {name: padded, f"{name}_attention_mask": rows[:, :, None] & columns[:, None, :]}


def batch_dtype(kind: np.dtype[Any]) -> np.dtype[Any]:
    """Whole numbers as torch's indices are, but pixels as bytes; fractions in single precision."""
    if kind == np.float64:
        return np.dtype(np.float32)
    return np.dtype(np.int64) if kind.kind in "iu" and kind != np.uint8 else kind


def count_tokens(batch: ArrayRow, fields: RaggedFields) -> int:
    """Tokens of all streams without padding; rows, where there are none, as of images."""
    streams = {stream: name for name, (stream, _) in fields.items()}
    if not streams:
        return len(batch["image"]) if "image" in batch else max(map(len, batch.values()))
    total = 0
    for stream, name in streams.items():
        mask = attention_mask(batch, stream)
        total += int(np.prod(batch[name].shape) if mask is None else mask.sum())
    return total
