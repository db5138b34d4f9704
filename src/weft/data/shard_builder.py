"""A shard from its piece: a pure function of it."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ..addresses import Location, locate
from ..recipe.formats import BadRow, Piece, SourceItem, SourceRow
from ..storage import seal_json, unseal_json, write_atomically
from ..values import from_plain
from .drop_table import PieceReader
from .encode import build_encoder
from .files import file_sha256
from .jobs import PieceTask, Tick, WorkerProgress, named_piece_errors, piece_from_json
from .quarantine import allowed_bad_rows, bad_row_entry, check_row, describe_bad_rows
from .shard import ShardWriter
from .tokenizer import Tokenizer

BATCH = 1 << 20  # characters that are tokenised together
NEEDED = {"file", "sha256", "bytes", "fingerprint"}
MANY = 10_000  # bad rows of one piece: enough to see that it is not what it should be


class SplitJob(NamedTuple):
    """What all pieces of a split have in common, in plain words."""

    folder: str
    source: Any
    row: Any
    labels: list[str] | None
    tokenizer: str | None  # the file
    max_bad_rows: float

    def open(self) -> Callable[[Any, Tick], None]:
        return ShardBuilder(self).build


class ShardBuilder:
    """Everything that is loaded once for many pieces."""

    def __init__(self, job: SplitJob) -> None:
        self.job = job
        self.folder = locate(job.folder)
        self.source = from_plain(job.source)
        self.row = from_plain(job.row)
        self.read = PieceReader(self.source, self.row, self.folder)
        self.tokenizer = Tokenizer.load(job.tokenizer) if job.tokenizer else None
        self.labels = None if job.labels is None else tuple(job.labels)

    def build(self, task: Any, tick: Tick) -> None:
        """Write a shard, or raise one line about what is in its way."""
        number, plain, fingerprint = task
        piece = piece_from_json(plain)
        with named_piece_errors(self.folder, f"{number:05d}.arrow", piece):
            self.shard(PieceTask(number, plain, fingerprint), piece, tick)

    def shard(self, task: PieceTask, piece: Piece, tick: Tick) -> None:
        """The shard and, last, its facts: a shard without them is not finished."""
        build = build_encoder(self.row, self.tokenizer, self.labels)
        bad: list[dict[str, Any]] = []
        good = 0
        path = self.folder / f"{task.number:05d}.arrow"
        items = self.read(task.number, piece, self.row.columns)
        with ShardWriter(path, build.schema) as shard:
            for batch, size in batches(items):
                before = self.tokenizer.seconds if self.tokenizer else 0.0
                good_rows = []
                for item in batch:
                    wrong = (
                        item
                        if isinstance(item, BadRow)
                        else check_row(self.row, item, self.labels or ())
                    )
                    if isinstance(item, SourceRow) and wrong is None:
                        good_rows.append(item)
                    elif wrong:
                        bad.append(bad_row_entry(wrong, item, piece.paths[0], self.source.format))
                if good_rows:
                    shard.extend(build(good_rows))
                good += len(good_rows)
                if len(bad) > max(MANY, allowed_bad_rows(good + len(bad), self.job.max_bad_rows)):
                    raise ValueError(
                        f"{len(bad):,} of {good + len(bad):,} rows cannot be read "
                        f"({describe_bad_rows(bad)})"
                    )
                tick(
                    WorkerProgress(size, self.tokenizer.seconds - before if self.tokenizer else 0.0)
                )
        facts = {
            "file": path.name,
            "rows": shard.rows,
            "tokens": shard.counts[build.schema.names[0]][0] if self.tokenizer else 0,
        }
        facts |= {"sentences": shard.counts["sentences"][0]} if "sentences" in shard.counts else {}
        facts |= {
            "sha256": shard.sha256,
            "bytes": shard.bytes,
            "fingerprint": task.fingerprint,
            "quarantine": bad,
        }
        write_atomically(path.with_suffix(".json"), seal_json(facts))


def shard_facts(split: Location, task: PieceTask, verify: bool = False) -> dict[str, Any] | None:
    """What a finished shard says of itself, if it was made from this very piece; `verify` also
    compares its SHA-256."""
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
    """The facts in a file, if it is one that `ShardBuilder.shard` wrote."""
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
    """Rows of about a megabyte together, with their size."""
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
