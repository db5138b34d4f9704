"""Building of a shard from its piece, as a pure function."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ...recipe.data.formats import BadRow, Piece, SourceItem, SourceRow
from ...support.addresses import Location, locate
from ...support.storage import seal_json, unseal_json, write_atomically
from ...support.values import from_plain
from ..preparing.drop_table import PieceReader
from ..preparing.jobs import PieceTask, Tick, WorkerProgress, named_piece_errors
from ..reading.files import file_sha256
from ..reading.quarantine import allowed_bad_rows, bad_row_entry, check_row, describe_bad_rows
from ..tokenizing.tokenizer import Tokenizer
from .encode import build_encoder
from .shard import ShardWriter

BATCH = 1 << 20  # characters that are tokenised together
NEEDED = {"file", "sha256", "bytes", "fingerprint"}
MANY = 10_000  # bad rows after which the whole piece is rejected


class SplitJob(NamedTuple):
    """The settings of all pieces of a split, as plain values."""

    folder: str
    source: Any
    row: Any
    labels: list[str] | None
    tokenizer: str | None  # the file
    max_bad_rows: float

    def open(self) -> Callable[[Any, Tick], None]:
        return ShardBuilder(self).build


class ShardBuilder:
    """The objects loaded once for many pieces."""

    def __init__(self, job: SplitJob) -> None:
        self.job = job
        self.folder = locate(job.folder)
        self.source = from_plain(job.source)
        self.row = from_plain(job.row)
        self.read = PieceReader(self.source, self.row, self.folder)
        self.tokenizer = Tokenizer.load(job.tokenizer) if job.tokenizer else None
        self.labels = None if job.labels is None else tuple(job.labels)

    def build(self, plain: Any, tick: Tick) -> None:
        """Write a shard and, last, its facts; a shard without them is unfinished. Errors have one
        line.
        """
        task = PieceTask.from_json(plain)
        path = self.folder / f"{task.number:05d}.arrow"
        with named_piece_errors(self.folder, path.name, task.piece):
            facts = self.write_shard(path, task, tick)
            write_atomically(path.with_suffix(".json"), seal_json(facts))

    def write_shard(self, path: Location, task: PieceTask, tick: Tick) -> dict[str, Any]:
        """Write a shard and return its facts."""
        encode = build_encoder(self.row, self.tokenizer, self.labels)
        bad: list[dict[str, Any]] = []
        good = 0
        items = self.read(task.number, task.piece, self.row.columns)
        with ShardWriter(path, encode.schema) as shard:
            for batch, size in batches(items):
                before = self.tokenizer_seconds
                rows = self.usable_rows(batch, task.piece, bad)
                if rows:
                    shard.extend(encode(rows))
                good += len(rows)
                self.check_bad_rows(good, bad)
                tick(WorkerProgress(size, self.tokenizer_seconds - before))
        facts: dict[str, Any] = {"file": path.name, "rows": shard.rows, "tokens": 0}
        if self.tokenizer:
            facts["tokens"] = shard.counts[encode.schema.names[0]][0]
        if "sentences" in shard.counts:
            facts["sentences"] = shard.counts["sentences"][0]
        return facts | {
            "sha256": shard.sha256,
            "bytes": shard.bytes,
            "fingerprint": task.fingerprint,
            "quarantine": bad,
        }

    @property
    def tokenizer_seconds(self) -> float:
        return self.tokenizer.seconds if self.tokenizer else 0.0

    def usable_rows(
        self, items: list[SourceItem], piece: Piece, bad: list[dict[str, Any]]
    ) -> list[SourceRow]:
        """Yield the usable rows, and append the others to `bad`."""
        rows = []
        for item in items:
            if isinstance(item, BadRow):
                wrong: BadRow | None = item
            else:
                wrong = check_row(self.row, item, self.labels or ())
                if wrong is None:
                    rows.append(item)
            if wrong:
                bad.append(bad_row_entry(wrong, item, piece.paths[0], self.source.format))
        return rows

    def check_bad_rows(self, good: int, bad: list[dict[str, Any]]) -> None:
        """Raise ValueError if too many rows are bad for a valid piece."""
        total = good + len(bad)
        if len(bad) > max(MANY, allowed_bad_rows(total, self.job.max_bad_rows)):
            raise ValueError(
                f"{len(bad):,} of {total:,} rows cannot be read ({describe_bad_rows(bad)})"
            )


def shard_facts(split: Location, task: PieceTask, verify: bool = False) -> dict[str, Any] | None:
    """Return the facts of a finished shard of this piece, else None; `verify` also compares its
    SHA-256.
    """
    path = split / f"{task.number:05d}.arrow"
    shard = read_shard_facts(path.with_suffix(".json"))
    if shard is None or shard["fingerprint"] != task.fingerprint:
        return None
    try:
        if path.stat().st_size != shard["bytes"]:
            return None
        if verify and file_sha256(str(path)) != shard["sha256"]:
            return None
    except OSError:
        return None
    return shard


def read_shard_facts(path: Location) -> dict[str, Any] | None:
    """Return the facts in a file that `ShardBuilder.shard` wrote, else None."""
    try:
        text = path.read_text()
        content = unseal_json(text)
    except (OSError, ValueError):
        return None
    is_shard_facts = (
        NEEDED <= content.keys() <= NEEDED | {"rows", "tokens", "sentences", "quarantine"}
        and content["file"] == f"{path.stem}.arrow"
    )
    return content if is_shard_facts else None


def batches(items: Iterator[SourceItem]) -> Iterator[tuple[list[SourceItem], int]]:
    """Yield rows of about a megabyte together, with their size."""
    rows: list[SourceItem] = []
    size = 0
    for item in items:
        rows.append(item)
        size += 64
        if isinstance(item, SourceRow):
            size += sum(len(cell) for cell in item.fields.values() if isinstance(cell, str | bytes))
        if size > BATCH:
            yield rows, size
            rows = []
            size = 0
    if rows:
        yield rows, size
