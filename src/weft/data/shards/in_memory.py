"""Rows in memory with the interface of prepared data: the same encoders, no files."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ... import recipe as R
from ...recipe.data.formats import Fields, SourceRow
from ..tokenizing.tokenizer import Tokenizer
from .encode import build_encoder
from .shard import build_arrow_array
from .store import DataInfo, Shard, Store, holds_tokens


class InMemoryStore(Store):
    """A split of one shard in memory."""

    def __init__(
        self,
        rows: Sequence[Fields | SourceRow],
        row: R.RowSchema,
        tokenizer: Tokenizer | None,
        labels: tuple[str, ...] | None,
    ) -> None:
        make = build_encoder(row, tokenizer, labels)
        columns = make(
            [row if isinstance(row, SourceRow) else SourceRow(i, row) for i, row in enumerate(rows)]
        )
        arrays = [to_arrow(field.type, *columns[field.name]) for field in make.schema]
        self.memory_shard = InMemoryShard(pa.RecordBatch.from_arrays(arrays, schema=make.schema))
        self.meta = data_info(row, tokenizer, labels)
        self.row_starts, self.token_starts = (
            np.array([0, n]) for n in (self.memory_shard.batch.num_rows, self.memory_shard.size)
        )
        digest = hashlib.sha256(repr(make.schema).encode())
        for column in self.memory_shard.batch.columns:
            for buffer in column.buffers():
                digest.update(buffer or b"")
        self.fingerprint = digest.hexdigest()

    def shard(self, spec: int) -> Shard:
        return self.memory_shard


class InMemoryShard(Shard):
    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch = batch
        self.path = Path("rows in memory")
        self.columns = {}
        self.readers = {}
        self.tokens = next((f.name for f in batch.schema if holds_tokens(f.type)), "")
        self.size = int(self.lists(self.tokens)[0][-1]) if self.tokens else 0


def to_arrow(kind: Any, values: np.ndarray, *ends: np.ndarray) -> Any:
    """Return the column of an encoder as an Arrow array."""
    leaf = kind
    while pa.types.is_large_list(leaf):
        leaf = leaf.value_type
    flat = pa.types.is_large_binary(leaf) or pa.types.is_large_string(leaf)
    parts = [
        values.astype(np.uint8 if flat else leaf.to_pandas_dtype()),
        *(np.concatenate([[0], e]).astype(np.int64) for e in ends),
    ]
    return build_arrow_array(
        kind,
        [pa.py_buffer(np.ascontiguousarray(part)) for part in parts],
        [len(values), *map(len, ends)],
    )


def data_info(
    row: R.RowSchema, tokenizer: Tokenizer | None, labels: tuple[str, ...] | None
) -> DataInfo:
    """Return the `DataInfo` of rows in memory."""
    if tokenizer is None:
        return DataInfo(row, labels=labels)
    return DataInfo(
        row,
        tokenizer.size,
        tokenizer.special,
        tokenizer.sentinels,
        labels,
        tokenizer.is_continuation,
    )


class ListSamples:
    """A list as samples."""

    def __init__(self, samples: Sequence[Fields], length_of: str = "tokens") -> None:
        self.samples = samples
        self.length_of = length_of

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, i: int) -> Fields:
        return self.samples[i]

    def lengths(self, indices: np.ndarray) -> np.ndarray:
        return np.array([len(self.samples[i][self.length_of]) for i in indices], np.int64)
