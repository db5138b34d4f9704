"""A shard: one Arrow file with one record batch, built column by column in bounded memory and
renamed when complete.
"""

import mmap
import os
import tempfile
from hashlib import file_digest
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import numpy as np
import pyarrow as pa

from ...support.addresses import Location
from ...support.storage import publish, temporary_path
from ..reading.files import cache_digest

Array = np.ndarray[Any, Any]


class Column:
    """The values of a column and, per level of lists, their ends. Bytes are lists of bytes here."""

    def __init__(self, kind: Any, folder: Path | None) -> None:
        self.kind = kind
        leaf = kind
        self.depth = 0
        while pa.types.is_large_list(leaf):
            leaf = leaf.value_type
            self.depth += 1
        flat = pa.types.is_large_binary(leaf) or pa.types.is_large_string(leaf)
        self.depth += flat
        self.leaf = np.dtype(np.uint8) if flat else np.dtype(leaf.to_pandas_dtype())
        self.files: list[IO[bytes]] = [
            tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
            for _ in range(self.depth + 1)
        ]
        self.counts = [0] * (self.depth + 1)
        for file in self.files[1:]:
            file.write(np.zeros(1, np.int64).tobytes())

    def extend(self, values: Array, *ends: Array) -> None:
        """Append values; `ends` are per level, innermost first, relative to this call. Values after
        the last end start the next list.
        """
        assert len(ends) == self.depth
        for level, array in enumerate((values.astype(self.leaf, copy=False), *ends)):
            shifted = array if not level else array.astype(np.int64) + self.counts[level - 1]
            self.files[level].write(np.ascontiguousarray(shifted).data if len(shifted) else b"")
        for level, array in enumerate((values, *ends)):
            self.counts[level] += len(array)

    def array(self) -> Any:
        """Return the column as an Arrow array, memory-mapped from temporary files."""
        buffers = []
        for file in self.files:
            file.flush()
            size = os.fstat(file.fileno()).st_size
            buffers.append(
                pa.py_buffer(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ))
                if size
                else pa.py_buffer(b"")
            )
        return build_arrow_array(self.kind, buffers, self.counts)

    def close(self) -> None:
        for file in self.files:
            file.close()


def build_arrow_array(kind: Any, buffers: list[Any], counts: list[int]) -> Any:
    if pa.types.is_large_list(kind):
        child = build_arrow_array(kind.value_type, buffers[:-1], counts[:-1])
        return pa.Array.from_buffers(kind, counts[-1], [None, buffers[-1]], children=[child])
    return pa.Array.from_buffers(kind, counts[-1], [None, *reversed(buffers)])


class ShardWriter:
    """Context that writes a shard by `extend`. The file exists after the block, unless it raised an
    error.
    """

    def __init__(self, path: Location, schema: Any) -> None:
        self.path = path
        self.schema = schema
        folder = path.parent if isinstance(path, Path) else None  # None: the system's own
        self.columns = {field.name: Column(field.type, folder) for field in schema}

    def extend(self, columns: dict[str, tuple[Array, ...]]) -> None:
        for name, column in self.columns.items():
            column.extend(*columns[name])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self.finish()
        finally:
            for column in self.columns.values():
                column.close()

    def finish(self) -> None:
        self.counts = {name: column.counts[:] for name, column in self.columns.items()}
        batch = pa.RecordBatch.from_arrays(
            [column.array() for column in self.columns.values()], schema=self.schema
        )
        self.rows = batch.num_rows
        local = (
            self.path
            if isinstance(self.path, Path)
            else Path(tempfile.gettempdir(), self.path.name)
        )
        temporary = temporary_path(local)
        with pa.OSFile(str(temporary), "wb") as out, pa.ipc.new_file(out, self.schema) as writer:
            writer.write_batch(batch)
        with open(temporary, "rb") as file:
            self.sha256 = file_digest(file, "sha256").hexdigest()
        self.bytes = temporary.stat().st_size
        try:
            publish(temporary, self.path)
        except BaseException:  # an upload that failed
            temporary.unlink(missing_ok=True)
            raise
        cache_digest(str(self.path), self.sha256)


def bytes_column(values: list[bytes]) -> tuple[Array, Array]:
    """Strings or images as a column."""
    return np.frombuffer(b"".join(values), np.uint8), np.cumsum(
        [len(v) for v in values], dtype=np.int64
    )
