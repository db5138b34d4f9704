"""`weft prepare`: from sources to shards, once. Any number of parts on any machines give the same bytes; an interrupted run
continues."""

import base64
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .. import recipe as R
from ..recipe.cells import class_names, sorted_classes
from ..recipe.formats import Piece, SourceRow
from ..storage import (
    digest_plain,
    is_stale_temporary,
    seal_json,
    write_atomically,
    write_if_changed,
)
from ..values import to_plain
from .files import MissingFile, file_identity, find
from .ownership import (
    check_no_foreign_files,
    check_same_pieces,
    check_same_settings,
    finished_shards,
    read_data_json,
)
from .quarantine import write_quarantine
from .source import format_of, read_piece, reading_settings, resolve_source, split_source
from .tokenizer import Tokenizer
from .train_tokenizer import fit_tokenizer, sample_texts
from .workers import ShardTask, SplitJob, WorkerProgress, build_shards, shard_facts

VERSION = 1  # of the layout on disk
SAMPLE = 200_000_000  # characters that a tokenizer learns from, spread over the pieces
SOON = 0.02  # fraction done before the time left is estimated


class PrepareProgress(NamedTuple):
    """Progress of preparing data: characters so far, and the speed of the tokenizer alone beside that of the whole."""

    stage: str  # classes, tokenizer, train, valid
    done: float  # the share, about
    text: int  # characters
    seconds: float
    tokenizer_seconds: float  # the tokenizer's own seconds, over all workers
    workers: int

    @property
    def left(self) -> float:
        return self.seconds * (1 / self.done - 1) if self.done >= SOON else float("inf")

    @property
    def speed(self) -> float:
        """Return millions of characters per second."""
        return self.text / self.seconds / 1e6 if self.seconds else 0.0

    @property
    def tokenizer_speed(self) -> float:
        """Return the speed of the tokenizer alone on as many workers."""
        return (
            self.text * self.workers / self.tokenizer_seconds / 1e6
            if self.tokenizer_seconds
            else 0.0
        )


ReportProgress = Callable[[PrepareProgress], None]


def prepare(
    data: R.Data,
    folder: str | Path | None = None,
    *,
    shard: tuple[int, int] | None = None,
    workers: int | None = None,
    report: ReportProgress | None = None,
    verify: bool = False,
    overwrite: bool = False,
) -> Path:
    """Prepare both splits and return their folder. `shard` = (i, n) prepares every n-th piece from the i-th; the process that finds all
    shards finished writes the index. A finished `prepared_folder` of the recipe is used without its sources. `verify` compares the
    SHA-256 of finished shards and writes damaged ones again. A finished folder of other data is replaced only with `overwrite`, since a
    run may be reading it."""
    index, count = shard or (0, 1)
    if not 0 <= index < count:
        raise ValueError(f"shard = {index} of {count}: give a number from 0 to {count - 1}")
    try:
        splits = plan_splits(data)
    except MissingFile:
        if (
            data.prepared_folder
            and Path(folder or data.prepared_folder) == Path(data.prepared_folder)
            and is_complete(data, Path(data.prepared_folder))
        ):
            return Path(data.prepared_folder)
        raise
    root = Path(folder or data.prepared_folder or Path("prepared") / fingerprint(data, splits))
    check_no_foreign_files(root)
    if not overwrite:
        check_same_settings(root, tokenizer_and_labels_key(data, *splits["train"]))
    root.mkdir(parents=True, exist_ok=True)
    workers = workers or (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    tokenizer, labels = prepare_tokenizer_and_labels(data, *splits["train"], root, report)
    for name, (source, work) in splits.items():
        split = root / name
        split.mkdir(exist_ok=True)
        common = [
            VERSION,
            to_plain(data.rows),
            reading_settings(source),
            tokenizer.sha256 if tokenizer else None,
            labels,
        ]
        tasks = [
            ShardTask(i, piece, digest_plain(common, piece.identity, piece.spans))
            for i, piece in enumerate(work)
        ]
        stale = (
            split / "index.json"
        ).exists()  # asked first: one that comes later is another process's, of all shards
        if stale and not overwrite:
            check_same_pieces(split, tasks)
        todo = [
            task
            for task in tasks
            if task.number % count == index and shard_facts(split, task, verify) is None
        ]
        if todo:
            if stale:
                (split / "index.json").unlink(missing_ok=True)
            file = str(root / "tokenizer.json") if tokenizer else None
            job = SplitJob(
                str(split),
                to_plain(source),
                to_plain(data.rows),
                labels,
                file,
                data.max_bad_row_fraction,
            )
            clock = ProgressClock(name, todo, min(workers, len(todo)), report)
            build_shards(job, todo, workers, clock.tick)
            clock.tell(1.0)
        write_index(split, tasks, common, data.max_bad_row_fraction)
    return root


def plan_splits(data: R.Data) -> dict[str, tuple[R.Source, list[Piece]]]:
    sources = {"train": data.train, "valid": data.valid}
    resolved = {
        name: resolve_source(source, data.rows) for name, source in sources.items() if source
    }
    return {name: (source, split_source(source)) for name, source in resolved.items()}


def is_complete(data: R.Data, root: Path) -> bool:
    """Return whether the folder has everything that a run on these data reads."""
    data_json = read_data_json(root)
    return (
        data_json is not None
        and digest_plain(data_json["rows"]) == digest_plain(to_plain(data.rows))
        and all(
            (root / name / "index.json").exists()
            for name in (["train", "valid"] if data.valid else ["train"])
        )
    )


def fingerprint(data: R.Data, splits: dict[str, tuple[R.Source, list[Piece]]] | None = None) -> str:
    """Return the fingerprint of the data value and the content of its files."""
    content = {
        name: [reading_settings(source), [[p.identity, p.spans] for p in work]]
        for name, (source, work) in (splits or plan_splits(data)).items()
    }
    return digest_plain(VERSION, to_plain(data.rows), *tokenizer_identity(data), content)[:16]


def tokenizer_identity(data: R.Data) -> list[Any]:
    files = data.tokenizer.files() if data.tokenizer else ()
    return [to_plain(data.tokenizer), [file_identity(find(path)[0]) for path in files]]


class ProgressClock:
    """Turns ticks of all workers into progress, a few times per second."""

    def __init__(
        self, stage: str, tasks: list[ShardTask], workers: int, report: ReportProgress | None
    ) -> None:
        self.stage, self.workers, self.say, self.began, self.last_print = (
            stage,
            workers,
            report,
            time.perf_counter(),
            0.0,
        )
        self.total, self.text, self.busy, self.lock = (
            sum(task.piece.size for task in tasks),
            0,
            0.0,
            threading.Lock(),
        )

    def tick(self, tick: WorkerProgress) -> None:
        with self.lock:
            self.text, self.busy = self.text + tick.text, self.busy + tick.busy
            if time.perf_counter() - self.last_print > 0.2:
                self.last_print = time.perf_counter()
                self.tell(min(0.99, self.text / max(1, self.total)))

    def tell(self, done: float) -> None:
        if self.say:
            self.say(
                PrepareProgress(
                    self.stage,
                    done,
                    self.text,
                    time.perf_counter() - self.began,
                    self.busy,
                    self.workers,
                )
            )


# What all pieces need: a tokenizer, and the names of classes


@contextmanager
def reporting(stage: str, report: ReportProgress | None) -> Iterator[None]:
    """Report a few times per second that a stage is still running."""
    if report is None:
        yield
        return
    began, over = time.perf_counter(), threading.Event()

    def tell(done: float) -> None:
        report(PrepareProgress(stage, done, 0, time.perf_counter() - began, 0.0, 1))

    def beat() -> None:
        tell(0.0)
        while not over.wait(0.2):
            tell(0.0)

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    tell(1.0)


def tokenizer_and_labels_key(data: R.Data, source: R.Source, work: list[Piece]) -> str:
    return digest_plain(
        VERSION,
        to_plain(data.rows),
        *tokenizer_identity(data),
        reading_settings(source),
        [[p.identity, p.spans] for p in work],
    )


def prepare_tokenizer_and_labels(
    data: R.Data, source: R.Source, work: list[Piece], root: Path, report: ReportProgress | None
) -> tuple[Tokenizer | None, list[str] | None]:
    key = tokenizer_and_labels_key(data, source, work)
    with suppress(OSError, ValueError):
        data_json = read_data_json(root)
        tokenizer = Tokenizer.load(root) if data_json and data_json["tokenizer"] else None
        if (
            data_json
            and data_json["key"] == key
            and data_json["sha256"] == (tokenizer.sha256 if tokenizer else None)
        ):
            return tokenizer, data_json["labels"]
    labels = find_labels(data.rows, source, work, report)
    tokenizer = train_tokenizer(data, source, work, report)
    mask = np.packbits(tokenizer.is_continuation, bitorder="little").tobytes() if tokenizer else b""
    write_atomically(
        root / "data.json",
        seal_json(
            {
                "rows": to_plain(data.rows),
                "vocab_size": tokenizer.size if tokenizer else None,
                "special_tokens": tokenizer.special if tokenizer else {},
                "sentinels": list(tokenizer.sentinels) if tokenizer else [],
                "labels": labels,
                "tokenizer": "tokenizer.json" if tokenizer else None,
                "is_continuation": base64.b64encode(mask).decode() if tokenizer else None,
                "sha256": tokenizer.sha256 if tokenizer else None,
                "key": key,
            }
        ),
    )
    if tokenizer:  # after data.json, by which the folder is known as ours
        write_atomically(root / "tokenizer.json", tokenizer.text.encode())
    return tokenizer, labels


def train_tokenizer(
    data: R.Data, source: R.Source, work: list[Piece], report: ReportProgress | None
) -> Tokenizer | None:
    columns = data.rows.text_columns
    if not columns:
        return None
    if data.tokenizer is None:
        raise ValueError(
            f"{type(data.rows).__name__} contain text, which needs a tokenizer; give Data(tokenizer=…)"
        )
    share = 1 << 62 if data.tokenizer.reads_all_text else SAMPLE // max(1, len(work))
    with reporting("tokenizer", report):
        return fit_tokenizer(data.tokenizer, lambda: sample_texts(source, work, columns, share))


def find_labels(
    row: R.RowSchema, source: R.Source, work: list[Piece], report: ReportProgress | None
) -> list[str] | None:
    """Return the class names in order: those given, or those of the training data, numbers sorted by value."""
    column = row.label_column
    if column is None:
        return None
    if row.labels:
        return list(row.labels)
    if (known := format_of(source).class_names(source, work)) is not None:
        return known
    seen: set[str] = set()
    with reporting("classes", report):
        for item in (item for piece in work for item in read_piece(source, piece, (column,))):
            seen.update(class_names(item.fields.get(column)) if isinstance(item, SourceRow) else ())
    return sorted_classes(seen)


# The index, when all is there


def write_index(
    split: Path, tasks: list[ShardTask], common: list[Any], max_bad_rows: float
) -> None:
    """Write the index if every shard is finished; its bytes do not depend on the process."""
    shard_entries = [shard_facts(split, task) for task in tasks]
    shards = [fact for fact in shard_entries if fact]
    if len(shards) < len(tasks):
        return
    shard_names = {f"{task.number:05d}" for task in tasks}
    strays = [
        path for path in finished_shards(split) if path.stem not in shard_names
    ]  # of longer data
    strays += [path.with_suffix(".arrow") for path in strays]
    for stray in strays + [
        path for path in split.glob(".*.tmp") if is_stale_temporary(path)
    ]:  # of a killed run
        stray.unlink(missing_ok=True)
    rows = sum(shard["rows"] for shard in shards)
    write_quarantine(
        split, rows, [entry for shard in shards for entry in shard["quarantine"]], max_bad_rows
    )
    named = [
        {
            name: shard[name]
            for name in ("file", "rows", "tokens", "sentences", "sha256")
            if name in shard
        }
        for shard in shards
    ]
    index = {
        "fingerprint": digest_plain(common[1], common[3:], [shard["sha256"] for shard in shards]),
        "rows": rows,
        "shards": named,
    }
    write_if_changed(split / "index.json", seal_json(index))
