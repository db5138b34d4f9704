"""The work on one piece, and the processes that share the pieces out. A shard is a pure function of its piece."""

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from ..processes import die_with_parent
from ..recipe.formats import BadRow, Piece, SourceItem, SourceRow
from ..storage import seal_json, unseal_json, write_atomically
from ..values import from_plain
from .encode import build_encoder
from .files import file_identity
from .quarantine import allowed_bad_rows, bad_row_entry, check_row, describe_bad_rows
from .shard import ShardWriter
from .source import read_piece
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


class ShardTask(NamedTuple):
    number: int
    piece: Any
    fingerprint: str


class WorkerProgress(NamedTuple):
    """Since the last one: characters tokenised, and the tokenizer's own seconds."""

    text: int
    busy: float


class ShardBuilder:
    """Everything that is loaded once for many pieces."""

    def __init__(self, job: SplitJob) -> None:
        self.job, self.folder = job, Path(job.folder)
        self.source, self.row = from_plain(job.source), from_plain(job.row)
        self.tokenizer = Tokenizer.load(job.tokenizer) if job.tokenizer else None
        self.labels = None if job.labels is None else tuple(job.labels)

    def build(self, task: ShardTask, tick: Callable[[WorkerProgress], None]) -> None:
        """A shard, or one line about what is in its way."""
        piece = piece_from_json(task.piece)
        try:
            self.shard(task, piece, tick)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise ValueError(
                    f"the disk of {self.folder} is full: {task.number:05d}.arrow needs about {2 * piece.size / 1e6:.1f} MB "
                    "while it is written; free some space and run it again: finished shards are kept"
                ) from None
            raise ValueError(
                f"{error.filename or piece.paths[0]}: {error.strerror or error}"
            ) from None
        except LookupError as error:
            raise ValueError(
                f"{piece.paths[0]} cannot be read in this format: {type(error).__name__}: {error}; check the format and the file"
            ) from None

    def shard(self, task: ShardTask, piece: Piece, tick: Callable[[WorkerProgress], None]) -> None:
        """The shard and, last, its facts: a shard without them is not finished."""
        build = build_encoder(self.row, self.tokenizer, self.labels)
        bad: list[dict[str, Any]] = []
        good = 0
        path = self.folder / f"{task.number:05d}.arrow"
        with ShardWriter(path, build.schema) as shard:
            for batch, size in batches(read_piece(self.source, piece, self.row.columns)):
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
                        f"{len(bad):,} of {good + len(bad):,} rows cannot be read ({describe_bad_rows(bad)})"
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
            "bytes": path.stat().st_size,
            "fingerprint": task.fingerprint,
            "quarantine": bad,
        }
        write_atomically(path.with_suffix(".json"), seal_json(facts))


def shard_facts(split: Path, task: ShardTask, verify: bool = False) -> dict[str, Any] | None:
    """What a finished shard says of itself, if it was made from this very piece; `verify` also compares its SHA-256."""
    path = split / f"{task.number:05d}.arrow"
    shard = read_shard_facts(path.with_suffix(".json"))
    try:
        fits = (
            shard is not None
            and shard["fingerprint"] == task.fingerprint
            and path.stat().st_size == shard["bytes"]
        )
        return (
            shard
            if shard and fits and (not verify or file_identity(str(path)) == shard["sha256"])
            else None
        )
    except OSError:
        return None


def read_shard_facts(path: Path) -> dict[str, Any] | None:
    """The facts in a file, if it is one that `Workshop.shard` wrote."""
    try:
        text = path.read_text()
        content = (
            unseal_json(text) if '"seal": "' in text else json.loads(text)
        )  # those of an earlier version hold no SHA-256 of their own
    except (OSError, ValueError):
        return None
    is_shard_facts = (
        isinstance(content, dict)
        and NEEDED <= content.keys() <= NEEDED | {"rows", "tokens", "sentences", "quarantine"}
        and content["file"] == f"{path.stem}.arrow"
    )
    return content if is_shard_facts else None


def piece_from_json(plain: Any) -> Piece:
    paths, spans, size, identity = plain
    return Piece(tuple(paths), tuple((a, b) for a, b in spans), size, identity)


def batches(items: Iterator[SourceItem]) -> Iterator[tuple[list[SourceItem], int]]:
    """Rows of about a megabyte together, with their size."""
    rows: list[SourceItem] = []
    size = 0
    for item in items:
        rows.append(item)
        size += (
            64
            if isinstance(item, BadRow)
            else sum(len(cell) for cell in item.fields.values() if isinstance(cell, str | bytes))
            + 64
        )
        if size > BATCH:
            yield rows, size
            rows, size = [], 0
    if rows:
        yield rows, size


def build_shards(
    job: SplitJob, tasks: list[ShardTask], workers: int, tick: Callable[[WorkerProgress], None]
) -> None:
    """All tasks, in this process or shared out."""
    if workers <= 1 or len(tasks) <= 1:
        builder = ShardBuilder(job)
        for task in tasks:
            builder.build(task, tick)
        return
    left = iter(
        tasks
    )  # threads only hand work on; taking the next from a list's iterator is atomic
    started: list[subprocess.Popen[str]] = []
    with ThreadPoolExecutor(workers) as pool:
        try:
            for done in [
                pool.submit(run_worker, job, left, tick, started)
                for _ in range(min(workers, len(tasks)))
            ]:
                done.result()
        finally:
            for process in started:
                process.kill()


def run_worker(
    job: SplitJob,
    left: Iterator[ShardTask],
    tick: Callable[[WorkerProgress], None],
    started: list[subprocess.Popen[str]],
) -> None:
    """One process: a line of JSON for each piece, lines of ticks back. It ends when its input does, so it cannot outlive us for long."""
    environment = os.environ | {
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    with subprocess.Popen(
        [sys.executable, "-P", "-m", __name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        started.append(process)
        assert process.stdin
        assert process.stdout
        for line in chain([job], left):
            with suppress(BrokenPipeError):  # it is gone: then it says nothing either
                process.stdin.write(json.dumps(line) + "\n")
                process.stdin.flush()
            for answer in map(json.loads, process.stdout):
                if answer is None:
                    break
                if isinstance(answer, str):
                    raise ValueError(answer)
                tick(WorkerProgress(*answer))
            else:
                raise ValueError(
                    f"a worker process ended with code {process.wait()}; run it again to continue"
                )


def worker_main() -> None:
    """A worker's life: the job, then tasks. Answers are ticks, null for done, or a string for what is wrong."""

    def say(answer: Any) -> None:
        print(json.dumps(answer), flush=True)

    from ..user_code import load_code_of_environment

    die_with_parent()
    builder = None
    for line in sys.stdin:
        try:
            if builder is None:
                load_code_of_environment()
                builder = ShardBuilder(SplitJob(*json.loads(line)))
            else:
                builder.build(ShardTask(*json.loads(line)), say)
            say(None)
        except ValueError as error:
            say(str(error))


if __name__ == "__main__":
    worker_main()
