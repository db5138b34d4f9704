"""Rows in memory that read like prepared data: tokenised by the same makers, and nothing is written."""
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from .. import recipe as R
from ..data.lines import Found
from ..data.rows import maker
from ..data.shard import assemble
from ..data.store import Meta, Shard, Store, holds_tokens
from ..data.tokenizer import Tokenizer

Fields = dict[str, Any]


class Held(Store):
    """A split whose one shard was never a file."""

    def __init__(self, rows: Sequence[Fields | Found], row: R.Row, tokenizer: Tokenizer | None, labels: tuple[str, ...] | None) -> None:
        make = maker(row, tokenizer, labels)
        columns = make([held if isinstance(held, Found) else Found(i, held) for i, held in enumerate(rows)])
        arrays = [array(field.type, *columns[field.name]) for field in make.schema]
        self.held = Memory(pa.RecordBatch.from_arrays(arrays, schema=make.schema))
        self.meta = known(row, tokenizer, labels)
        self.row_starts, self.token_starts = (np.array([0, n]) for n in (self.held.batch.num_rows, self.held.size))
        digest = hashlib.sha256(repr(make.schema).encode())
        for column in self.held.batch.columns:
            for buffer in column.buffers():
                digest.update(buffer or b"")
        self.fingerprint = digest.hexdigest()

    def shard(self, s: int) -> Shard:
        return self.held


class Memory(Shard):
    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch, self.path, self.found, self.readers = batch, Path("rows in memory"), {}, {}
        self.tokens = next((f.name for f in batch.schema if holds_tokens(f.type)), "")
        self.size = int(self.lists(self.tokens)[0][-1]) if self.tokens else 0


def array(kind: Any, values: np.ndarray, *ends: np.ndarray) -> Any:
    """A maker's column as Arrow has it."""
    leaf = kind
    while pa.types.is_large_list(leaf):
        leaf = leaf.value_type
    flat = pa.types.is_large_binary(leaf) or pa.types.is_large_string(leaf)
    parts = [values.astype(np.uint8 if flat else leaf.to_pandas_dtype()), *(np.concatenate([[0], e]).astype(np.int64) for e in ends)]
    return assemble(kind, [pa.py_buffer(np.ascontiguousarray(part)) for part in parts], [len(values), *map(len, ends)])


def known(row: R.Row, tokenizer: Tokenizer | None, labels: tuple[str, ...] | None) -> Meta:
    """What `data.json` would say."""
    if tokenizer is None:
        return Meta(row, labels=labels)
    return Meta(row, tokenizer.size, tokenizer.special, tokenizer.sentinels, labels, tokenizer.continues)


class Given:
    """Samples that are there already."""

    def __init__(self, samples: Sequence[Fields], length_of: str = "tokens") -> None:
        self.samples, self.length_of = samples, length_of

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, i: int) -> Fields:
        return self.samples[i]

    def lengths(self, indices: np.ndarray) -> np.ndarray:
        return np.array([len(self.samples[i][self.length_of]) for i in indices], np.int64)
