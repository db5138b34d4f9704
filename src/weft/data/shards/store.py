"""The store of prepared data: Arrow shards in a directory, memory-mapped on first access."""

import base64
import hashlib
import json
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ... import recipe as R
from ...support.addresses import Location, ObjectPath, locate
from ...support.storage import DamagedFile, publish, temporary_path, unseal_json
from ...support.values import from_plain
from ..reading.files import file_identity
from .shard_cache import cached_file, make_room

OPEN = 64  # shards open at once in one process
AGAIN = "run weft prepare again"
MARK = b"ARROW1"


@dataclass(frozen=True)
class DataInfo:
    """The content of data.json."""

    rows: R.RowSchema
    vocab_size: int | None = None
    special_tokens: dict[str, int] = field(default_factory=dict)
    sentinels: tuple[int, ...] = ()  # the first one first
    labels: tuple[str, ...] | None = None
    # Per token, whether it continues a word
    is_continuation: np.ndarray | None = field(default=None, compare=False)
    tokenizer: str | None = None


class ShardEntry(NamedTuple):
    """The entry of a shard in index.json."""

    file: str
    rows: int
    tokens: int
    sha256: str


def open_store(folder: str | Location, split: str = "train") -> "Store":
    """Open a split. `folder` is a directory or an fsspec address, whose shards are downloaded on
    first access.
    """
    return Store(PreparedFolder(str(folder)), split)


class PreparedFolder:
    """A folder of prepared data; downloaded files are cached in $WEFT_CACHE or ~/.cache/weft."""

    def __init__(self, address: str) -> None:
        self.location = locate(address)
        self.address = str(self.location)
        self.remote = isinstance(self.location, ObjectPath)

    def read_text(self, name: str) -> str:
        try:
            return (self.location / name).read_text(encoding="utf-8")
        except (FileNotFoundError, UnicodeDecodeError) as error:
            wrong = "is missing: the data is not completely prepared"
            if isinstance(error, UnicodeDecodeError):
                wrong = "is damaged (no text)"
            raise ValueError(f"{self.address}/{name} {wrong}; {AGAIN}") from None

    def tokenizer(self) -> str:
        """Return the text of tokenizer.json, after comparing it with the SHA-256 in data.json."""
        text = self.read_text("tokenizer.json")
        sha256 = self.read_sealed_json("data.json").get("sha256")
        if sha256 is not None and hashlib.sha256(text.encode()).hexdigest() != sha256:
            raise ValueError(
                f"{self.address}/tokenizer.json is damaged (its SHA-256 is not that of "
                f"data.json); {AGAIN}"
            )
        return text

    def read_sealed_json(self, name: str) -> dict[str, Any]:
        try:
            return unseal_json(self.read_text(name))
        except (json.JSONDecodeError, DamagedFile) as error:
            raise ValueError(f"{self.address}/{name} is damaged ({error}); {AGAIN}") from None

    def local_path(self, name: str, fingerprint: str) -> Path:
        """Return the local file. It is downloaded under a temporary name, then renamed: other
        processes see all of it or nothing."""
        there = self.location / name
        if isinstance(there, Path):
            return there
        path = cached_file(self.address, fingerprint, name)
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            part = temporary_path(path)
            try:
                make_room(there.stat().st_size)
                there.download(part)
                publish(part, path)
            except FileNotFoundError:
                raise ValueError(f"{self.address}/{name} is missing; {AGAIN}") from None
            finally:
                part.unlink(missing_ok=True)
        return path


def read_meta(folder: PreparedFolder) -> DataInfo:
    plain = folder.read_sealed_json("data.json")
    labels = plain.get("labels")
    continuation = plain.get("is_continuation")
    if continuation is not None:  # one bit per token, the first token in the lowest bit
        bits = np.frombuffer(base64.b64decode(continuation), np.uint8)
        continuation = np.unpackbits(bits, count=plain["vocab_size"], bitorder="little").astype(
            bool
        )
    return DataInfo(
        rows=from_plain(plain["rows"]),
        vocab_size=plain.get("vocab_size"),
        special_tokens=plain.get("special_tokens") or {},
        sentinels=tuple(plain.get("sentinels") or ()),
        labels=None if labels is None else tuple(labels),
        is_continuation=continuation,
        tokenizer=plain.get("tokenizer"),
    )


class Store:
    """One split. Positions are found by bisection over the shards, so the cost of an access does
    not grow with the data.
    """

    def __init__(self, folder: PreparedFolder, split: str) -> None:
        index = folder.read_sealed_json(f"{split}/index.json")
        self.folder = folder
        self.split = split
        self.meta = read_meta(folder)
        self.fingerprint = str(index["fingerprint"])
        self.entries = [
            ShardEntry(e["file"], e["rows"], e.get("tokens", 0), e.get("sha256", ""))
            for e in index["shards"]
        ]
        self.row_starts = np.cumsum([0, *(e.rows for e in self.entries)])
        self.token_starts = np.cumsum([0, *(e.tokens for e in self.entries)])
        self.opened: OrderedDict[int, Shard] = OrderedDict()
        if index["rows"] != len(self):
            raise ValueError(
                f"{folder.address}/{split}/index.json says {index['rows']} rows, but its shards "
                f"have {len(self)}; {AGAIN}"
            )

    def __len__(self) -> int:
        return int(self.row_starts[-1])

    @property
    def tokens(self) -> int:
        return int(self.token_starts[-1])

    def row(self, i: int) -> dict[str, Any]:
        if not 0 <= i < len(self):
            raise IndexError(f"row {i} of {len(self)}")
        s = int(self.row_starts.searchsorted(i, "right")) - 1
        return self.shard(s).row(i - int(self.row_starts[s]))

    def column(self, name: str) -> list[Any]:
        """Return one column of all rows; the others, such as images, are not read."""
        values: list[Any] = []
        for s in range(len(self.row_starts) - 1):
            batch = self.shard(s).batch
            values += map(column_reader(batch.column(name)), range(batch.num_rows))
        return values

    def stream(self, start: int, stop: int) -> np.ndarray:
        """Return tokens [start, stop) of all documents, concatenated: a view, unless they span
        shards."""
        parts = [shard.stream[a:b] for shard, a, b, _ in self.pieces(start, stop)]
        return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, np.uint16), *parts])

    def documents(self, start: int, stop: int) -> np.ndarray:
        """Return the positions in [start, stop) at which a document starts."""
        return concatenate(
            [shard.documents(a, b) + base for shard, a, b, base in self.pieces(start, stop)]
        )

    def sentences(self, start: int, stop: int) -> np.ndarray:
        """Return the positions in [start, stop) at which a sentence starts."""
        return concatenate(
            [shard.sentences(a, b) + base for shard, a, b, base in self.pieces(start, stop)]
        )

    def lengths(self, rows: np.ndarray, column: str) -> np.ndarray:
        """Return how many values each row has in a column of lists; for lists of lists, the
        longest."""
        rows = np.asarray(rows, np.int64)
        shards = self.row_starts.searchsorted(rows, "right") - 1
        row_lengths = np.empty(len(rows), np.int64)
        together = shards.argsort(kind="stable")
        for group in (
            np.split(together, np.flatnonzero(np.diff(shards[together])) + 1) if len(rows) else ()
        ):
            s = int(shards[group[0]])
            row_lengths[group] = self.shard(s).lengths(rows[group] - self.row_starts[s], column)
        return row_lengths

    def pieces(self, start: int, stop: int) -> list[tuple["Shard", int, int, int]]:
        """Return the shards that hold tokens [start, stop), each with the range in it and the
        position of its first token."""
        pieces = []
        stop = min(stop, self.tokens)
        s = int(self.token_starts.searchsorted(start, "right")) - 1
        while start < stop:
            base = int(self.token_starts[s])
            end = int(self.token_starts[s + 1])
            if start < end:
                pieces.append((self.shard(s), start - base, min(stop, end) - base, base))
            start = end
            s += 1
        return pieces

    def shard(self, spec: int) -> "Shard":
        if spec in self.opened:
            self.opened.move_to_end(spec)
            return self.opened[spec]
        if len(self.opened) >= OPEN:
            self.opened.popitem(last=False)
        entry = self.entries[spec]
        name = f"{self.split}/{entry.file}"
        path = self.folder.local_path(name, self.fingerprint)
        if (wrong := shard_problem(path, entry)) and self.folder.remote:
            path.unlink(missing_ok=True)  # only our copy may be damaged
            path = self.folder.local_path(name, self.fingerprint)
            wrong = shard_problem(path, entry)
        if wrong:
            raise ValueError(wrong)
        self.opened[spec] = Shard(path, entry)
        return self.opened[spec]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"opened": OrderedDict()}  # another process opens its own


class Shard:
    """One Arrow file with one record batch; columns become numpy views when they are first read."""

    def __init__(self, path: Path, entry: ShardEntry) -> None:
        try:
            self.batch = memory_map(path)
        except FileNotFoundError:
            raise ValueError(f"{path} is missing; {AGAIN}") from None
        except (OSError, ValueError, StopIteration) as error:
            raise ValueError(f"{path} is damaged ({error}); {AGAIN}".replace("\n", " ")) from None
        if self.batch.num_rows != entry.rows:
            raise ValueError(
                f"{path} is damaged ({self.batch.num_rows} rows, not {entry.rows}); {AGAIN}"
            )
        self.path = path
        self.tokens = next((f.name for f in self.batch.schema if holds_tokens(f.type)), "")
        self.columns: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        self.readers: dict[str, Callable[[int], Any]] = {}
        if self.tokens and self.lists(self.tokens)[0][-1] != entry.tokens:
            raise ValueError(
                f"{path} is damaged ({self.lists(self.tokens)[0][-1]} tokens, not "
                f"{entry.tokens}); {AGAIN}"
            )

    def lists(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Return a column of lists: where each starts, and all values concatenated."""
        if name not in self.columns:
            column = self.batch.column(name)
            self.columns[name] = as_numpy(column.offsets), as_numpy(column.values)
        return self.columns[name]

    @property
    def stream(self) -> np.ndarray:
        return self.lists(self.tokens)[1]

    def row(self, i: int) -> dict[str, Any]:
        if not self.readers:
            self.readers = {
                name: column_reader(self.batch.column(name)) for name in self.batch.schema.names
            }
        return {name: read(i) for name, read in self.readers.items()}

    def lengths(self, rows: np.ndarray, column: str) -> np.ndarray:
        lists = self.batch.column(column)
        starts = as_numpy(lists.offsets)
        if not is_list(lists.type.value_type):
            return np.asarray(starts[rows + 1] - starts[rows])
        inner = np.diff(as_numpy(lists.values.offsets))
        return np.array([inner[starts[i] : starts[i + 1]].max(initial=0) for i in rows], np.int64)

    def documents(self, start: int, stop: int) -> np.ndarray:
        starts = self.lists(self.tokens)[0]
        first, last = starts.searchsorted((start, stop))
        document_starts = starts[first:last]
        ends = starts[first + 1 : last + 1]
        # An empty document starts where the next one does
        return np.asarray(document_starts[document_starts < ends])

    def sentences(self, start: int, stop: int) -> np.ndarray:
        """Return the starts of sentences. They are stored per document, relative to it: bisect the
        documents, then the sentences of the first and the last."""
        if "sentences" not in self.batch.schema.names:
            raise ValueError(
                f"{self.path} has no sentence boundaries; prepare the data with "
                "Documents(sentence_boundaries=True)"
            )
        starts, _ = self.lists(self.tokens)
        bounds, values = self.lists("sentences")
        first = int(starts.searchsorted(start, "right")) - 1
        last = int(starts.searchsorted(stop)) - 1
        low = bounds[first] + values[bounds[first] : bounds[first + 1]].searchsorted(
            start - starts[first]
        )
        high = bounds[last] + values[bounds[last] : bounds[last + 1]].searchsorted(
            stop - starts[last]
        )
        counts = np.diff(bounds[first : last + 2].clip(low, high))
        return np.asarray(starts[first : last + 1].repeat(counts) + values[low:high])


def memory_map(path: Path) -> pa.RecordBatch:
    """Memory-map an Arrow file. Reading it as a stream starts no threads and takes a third of the
    time.
    """
    with path.open("rb") as file:
        memory = mmap(file.fileno(), 0, access=ACCESS_READ)
    if memory[:6] != MARK or memory[-6:] != MARK:
        raise ValueError("not a whole Arrow file")
    return pa.ipc.open_stream(pa.py_buffer(memory).slice(8)).read_next_batch()


def is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_large_list(kind) or pa.types.is_list(kind))


def holds_tokens(kind: pa.DataType) -> bool:
    return is_list(kind) and bool(pa.types.is_unsigned_integer(kind.value_type))


def as_numpy(array: pa.Array) -> np.ndarray:
    """Return a view of the numbers. `array.to_numpy()` would first import pandas, where it is
    installed: 0.4 s of every start."""
    return np.from_dlpack(array)


def column_reader(column: pa.Array) -> Callable[[int], Any]:
    """Return a function that reads one row of a column: a view, a list of views, a number, bytes or
    a string."""
    if is_list(column.type):
        starts = as_numpy(column.offsets)
        inside = column.values
        if is_list(inside.type):
            inner = column_reader(inside)
            return lambda i: [inner(j) for j in range(starts[i], starts[i + 1])]
        values = as_numpy(inside)
        return lambda i: values[starts[i] : starts[i + 1]]
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        numbers = as_numpy(column)
        return lambda i: numbers[i].item()
    return lambda i: column[i].as_py()


def concatenate(parts: list[np.ndarray]) -> np.ndarray:
    return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, np.int64), *parts])


def shard_problem(path: Path, entry: ShardEntry) -> str | None:
    """Return what is wrong with a shard's bytes, if anything. They are hashed once per change of
    the file (`identity` caches), so that a second start is free."""
    try:
        sha256 = file_identity(str(path))
    except FileNotFoundError:
        return f"{path} is missing; {AGAIN}"
    except OSError as error:
        return f"{path} cannot be read ({error.strerror}); {AGAIN}"
    if sha256 != entry.sha256:
        return (
            f"{path} is damaged (its SHA-256 is {sha256[:12]}…, not {entry.sha256[:12]}…); {AGAIN}"
        )
    return None
