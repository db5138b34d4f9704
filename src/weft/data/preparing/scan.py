"""Scan of a piece: the decisions of quality filters, and the deduplication keys of each row.

The keys of a piece are in one file, sorted by the upper bits of their hashes, so that rows that
could be equal are in the same range of every such file, whatever the number of pieces (see
`match`).
"""

from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np

from ... import recipe as R
from ...recipe.data.formats import BadRow, SourceItem
from ...support.addresses import locate
from ...support.registry import implementation
from ...support.storage import write_atomically
from ...support.values import from_plain
from ..reading.quarantine import image_bytes
from ..reading.source import read_piece
from ..tokenizing.train_tokenizer import text_cells
from .drop_table import DropTable, Reason, table_path, write_drop_table
from .jobs import PieceTask, Tick, WorkerProgress, named_piece_errors

BUCKETS = 1 << 10  # ranges of hashes: as many parts as comparing can be divided into
KEY = np.dtype([("high", "<u8"), ("low", "<u8"), ("row", "<u4"), ("step", "u1")])  # 21 bytes
MANY_REASONS = 250
TICK = 1 << 20  # characters between two reports


class ScanJob(NamedTuple):
    """The settings of all pieces of a split, as plain values."""

    folder: str  # of the split
    source: Any
    row: Any

    def open(self) -> Callable[[Any, Tick], None]:
        return Scanner(self).scan


class Scanner:
    def __init__(self, job: ScanJob) -> None:
        self.folder = locate(job.folder)
        self.row = from_plain(job.row)
        self.source: R.Source = from_plain(job.source)
        self.filters = [
            (step, isinstance(value, R.Deduplication), implementation(value)(value))
            for step, value in enumerate(self.source.filters)
        ]

    def scan(self, plain: Any, tick: Tick) -> None:
        """Write the keys of a piece and, last, what the filters say of its rows."""
        number, piece, fingerprint = PieceTask.from_json(plain)
        with named_piece_errors(self.folder, table_path(self.folder, number).name, piece):
            items = read_piece(self.source, piece, self.row.columns)
            result = ScanResult()
            done = 0
            for content in row_contents(items, self.row):
                self.scan_row(content, result)
                done += len(content or "")
                if done > TICK:
                    tick(WorkerProgress(done, 0.0))
                    done = 0
            tick(WorkerProgress(done, 0.0))
            if any(compares for _, compares, _ in self.filters):
                write_atomically(table_path(self.folder, number, ".keys"), result.sorted_keys())
            write_drop_table(
                table_path(self.folder, number, ".scan"),
                DropTable(fingerprint, list(result.reasons), np.array(result.codes, np.uint8)),
            )

    def scan_row(self, content: str | bytes | None, result: "ScanResult") -> None:
        """Apply the filters in order up to the first that drops the row; one that cannot be read is
        set aside later."""
        row = len(result.codes)
        code = 0
        for step, compares, apply in self.filters if content is not None else ():
            if compares:
                result.add_keys(row, step, apply(content))
            elif reason := apply(content):
                code = result.code((step, reason))
                break
        result.codes.append(code)


class ScanResult:
    """The results of one piece, in memory, since a piece is small."""

    def __init__(self) -> None:
        self.reasons: dict[Reason, int] = {}
        self.codes: list[int] = []
        self.keys: list[tuple[bytes, int, int]] = []

    def code(self, reason: Reason) -> int:
        code = self.reasons.setdefault(reason, len(self.reasons) + 1)
        if code > MANY_REASONS:
            raise ValueError(
                f"a filter has more than {MANY_REASONS} reasons, such as {reason[1]!r}; return "
                "one of a few fixed texts"
            )
        return code

    def add_keys(self, row: int, step: int, keys: list[bytes]) -> None:
        """Keep 128 bits of each key; those of two filters are never equal."""
        self.keys += (
            (blake2b(key, digest_size=16, key=bytes([step])).digest(), row, step) for key in keys
        )

    def sorted_keys(self) -> bytes:
        """Return where each bucket starts, then the keys by bucket, in the order of the rows."""
        keys = np.empty(len(self.keys), KEY)
        halves = np.frombuffer(b"".join(key for key, _, _ in self.keys), "<u8").reshape(-1, 2)
        keys["high"] = halves[:, 0]
        keys["low"] = halves[:, 1]
        keys["row"] = [row for _, row, _ in self.keys]
        keys["step"] = [step for _, _, step in self.keys]
        bucket = keys["high"] >> np.uint64(64 - BUCKETS.bit_length() + 1)
        order = bucket.argsort(kind="stable")
        starts = np.searchsorted(bucket[order], np.arange(BUCKETS + 1))
        return starts.astype("<u4").tobytes() + keys[order].tobytes()


def row_contents(items: Iterator[SourceItem], row: R.RowSchema) -> Iterator[str | bytes | None]:
    """Yield the filters' input per row: its text, or the bytes of its images; None for a row
    without either. Rows of a long document are joined.
    """
    parts: list[str] = []
    open_document = False
    for item in items:
        if isinstance(item, BadRow):
            continue
        open_document = item.continues
        if open_document:
            parts += text_cells(item.fields, row.text_columns)
        else:
            yield row_content(item.fields, row, parts)
            parts = []
    if open_document:
        yield "".join(parts)


def row_content(fields: dict[str, Any], row: R.RowSchema, before: list[str]) -> str | bytes | None:
    if row.text_columns:
        cells = list(text_cells(fields, row.text_columns))
        return "".join([*before, "\n".join(cells)]) if len(cells) == len(row.text_columns) else None
    try:
        return b"".join(image_bytes(fields.get(name)) for name in row.image_columns)
    except ValueError:
        return None
