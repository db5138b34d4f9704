"""`prepare`: converts sources into shards. Any number of processes on any machines gives the same
bytes; an interrupted run continues.
"""

import base64
import os
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from ... import recipe as R
from ...recipe.data.cells import class_names, sorted_classes
from ...recipe.data.formats import Piece, SourceRow
from ...support.addresses import Location, is_remote, locate
from ...support.ranks import started_processes
from ...support.storage import (
    digest_plain,
    is_stale_temporary,
    seal_json,
    write_atomically,
    write_if_changed,
)
from ...support.values import to_plain
from ..reading.files import MissingFile
from ..reading.quarantine import write_quarantine
from ..reading.source import format_of, reading_settings
from ..shards.shard_builder import SplitJob, shard_facts
from ..tokenizing.tokenizer import Tokenizer
from ..tokenizing.train_tokenizer import fit_tokenizer, sample_texts
from .drop_table import PieceReader
from .filtering import check_filters, filter_rows, remove_filters, remove_scratch
from .jobs import PieceTask, RunTasks
from .ownership import (
    check_no_foreign_files,
    check_same_filters,
    check_same_pieces,
    check_same_settings,
    finished_shards,
    read_data_json,
)
from .plan import (
    VERSION,
    Splits,
    SplitWork,
    fingerprint,
    index_fingerprint,
    plan_splits,
    tokenizer_and_labels_key,
    training_splits,
)
from .prepared import PreparedData, is_complete, locate_prepared
from .task_runner import PrepareProgress as PrepareProgress
from .task_runner import ReportProgress, reporting, run_stage

SAMPLE = 200_000_000  # characters that a tokenizer learns from, spread over the pieces
DropDigests = dict[str, list[str]]  # per split, of what is dropped from each piece


def prepare(
    data: R.Data,
    folder: str | Path | None = None,
    *,
    shard: tuple[int, int] | None = None,
    workers: int | None = None,
    report: ReportProgress | None = None,
    verify: bool = False,
    overwrite: bool = False,
    on: Literal["processes", "ray"] = "processes",
) -> PreparedData:
    """Prepare both splits as shards; finished shards are opened.

    Args:
        data: the data to prepare.
        folder: the directory of the shards, local or in object storage (default:
            `data.prepared_folder`, else prepared/<fingerprint>). A finished `data.prepared_folder`
            is used without its sources.
        shard: (i, n) prepares every n-th piece from the i-th; the process that finishes the last
            shard writes the index (default: all pieces).
        workers: the number of processes (default: the number of cores).
        report: a function that is called with each `PrepareProgress` (default: none).
        verify: whether to compare the SHA-256 of finished shards and rewrite damaged ones.
        overwrite: whether to replace a finished directory of other data, which a run may be
            reading.
        on: where the work runs: in local processes, or on a Ray cluster.
    """
    part = shard or (0, 1)
    if not 0 <= part[0] < part[1]:
        raise ValueError(
            f"shard = ({part[0]}, {part[1]}) is out of range; give an index from 0 to {part[1] - 1}"
        )
    try:
        splits = plan_splits(data)
    except MissingFile:
        if (finished := finished_without_sources(data, folder)) is not None:
            return finished
        raise
    root = locate(folder or data.prepared_folder or Path("prepared") / fingerprint(data, splits))
    training = training_splits(data, splits)
    check_no_foreign_files(root, splits)
    if not overwrite:
        check_same_settings(root, tokenizer_and_labels_key(data, training))
    root.mkdir(parents=True, exist_ok=True)
    run = partial(run_stage, workers or available_cores(), on, report)
    dropped = filter_splits(splits, root, run, part, overwrite)
    if dropped is None:
        return PreparedData(data, root)  # other parts must be scanned first
    encoding = prepare_tokenizer_and_labels(data, training, root, report)
    writing = Writing(root, encoding, part, verify, overwrite, data.max_bad_row_fraction)
    for name, split in splits.items():
        write_split(name, split, dropped.get(name), writing, run)
    return PreparedData(data, root, is_checked=shard is None)


def prepare_for_run(
    data: R.Data, report: ReportProgress | None = None, workers: int | None = None
) -> PreparedData:
    """Prepare the data of a run if this process is the only writer. One of several processes, and a
    run whose shards are in object storage, use the result of `weft prepare`; training checks it on
    the first rank.
    """
    if started_processes() > 1 or is_remote(data.prepared_folder or ""):
        return locate_prepared(data)
    return prepare(data, report=report, workers=workers)


def finished_without_sources(data: R.Data, folder: str | Path | None) -> PreparedData | None:
    """Return the finished `prepared_folder` of a data value whose sources are missing, else
    None.
    """
    if not data.prepared_folder:
        return None
    root = locate(data.prepared_folder)
    if locate(folder or data.prepared_folder) != root or not is_complete(data, root):
        return None
    return PreparedData(data, root, is_checked=True)


class Encoding(NamedTuple):
    """The inputs of all pieces: a tokenizer and class names."""

    tokenizer: Tokenizer | None
    labels: list[str] | None

    @property
    def sha256(self) -> str | None:
        return self.tokenizer.sha256 if self.tokenizer else None


class Writing(NamedTuple):
    """The settings with which the shards of all splits are written."""

    root: Location
    encoding: Encoding
    part: tuple[int, int]  # every n-th piece, from the i-th
    verify: bool
    overwrite: bool
    max_bad_rows: float


def write_split(
    name: str, split: SplitWork, dropped: list[str] | None, writing: Writing, run: RunTasks
) -> None:
    """Write the missing shards of a split, and its index once all shards exist."""
    source, rows, work = split
    folder = writing.root / name
    folder.mkdir(exist_ok=True)
    encoding = writing.encoding
    common = [VERSION, to_plain(rows), reading_settings(source), encoding.sha256, encoding.labels]
    tasks = shard_tasks(common, work, dropped)
    # checked first: an index that appears later was written by another process
    stale = (folder / "index.json").exists()
    if stale and not writing.overwrite:
        check_same_pieces(folder, tasks)
    index, count = writing.part
    todo = [
        task
        for task in tasks
        if task.number % count == index and shard_facts(folder, task, writing.verify) is None
    ]
    if todo:
        if stale:
            (folder / "index.json").unlink(missing_ok=True)
        file = str(writing.root / "tokenizer.json") if encoding.tokenizer else None
        job = SplitJob(
            str(folder),
            to_plain(source),
            to_plain(rows),
            encoding.labels,
            file,
            writing.max_bad_rows,
        )
        run(job, todo, name)
    write_index(folder, tasks, common, writing.max_bad_rows)


def available_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def shard_tasks(common: list[Any], work: list[Piece], dropped: list[str] | None) -> list[PieceTask]:
    """Return the work on shards. What is dropped from a piece may depend on all others, so it is
    part of the fingerprint."""
    return [
        PieceTask(
            i,
            piece,
            digest_plain(common, piece.identity, piece.spans, *([dropped[i]] if dropped else [])),
        )
        for i, piece in enumerate(work)
    ]


def filter_splits(
    splits: Splits, root: Location, run: RunTasks, part: tuple[int, int], overwrite: bool
) -> DropDigests | None:
    """Apply the filters of all sources; None if other parts must be scanned first."""
    digests: DropDigests = {}
    complete = True
    for name, (source, rows, work) in splits.items():
        split = root / name
        if not overwrite:
            check_same_filters(split, source)
        if not source.filters:
            remove_filters(split)
            continue
        check_filters(source, rows)
        result = filter_rows(split, source, rows, work, run, part)
        complete = complete and result is not None
        digests[name] = result or []
    return digests if complete else None


# Tokenizer and class names, which all pieces need


def prepare_tokenizer_and_labels(
    data: R.Data, training: Splits, root: Location, report: ReportProgress | None
) -> Encoding:
    key = tokenizer_and_labels_key(data, training)
    with suppress(OSError, ValueError):
        data_json = read_data_json(root)
        tokenizer = Tokenizer.load(root) if data_json and data_json["tokenizer"] else None
        if (
            data_json
            and data_json["key"] == key
            and data_json["sha256"] == (tokenizer.sha256 if tokenizer else None)
        ):
            return Encoding(tokenizer, data_json["labels"])
    labels = find_labels(data.rows, training, root, report)
    tokenizer = train_tokenizer(data, training, root, report)
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
            | ({"sources": list(training)} if "train" not in training else {})
        ),
    )
    if tokenizer:  # after data.json, by which the folder is known as ours
        write_atomically(root / "tokenizer.json", tokenizer.text.encode())
    return Encoding(tokenizer, labels)


def train_tokenizer(
    data: R.Data, training: Splits, root: Location, report: ReportProgress | None
) -> Tokenizer | None:
    if not data.rows.text_columns:
        return None
    if data.tokenizer is None:
        raise ValueError(
            f"Data.tokenizer is None, but {type(data.rows).__name__} needs one; give "
            "Data(tokenizer=…)"
        )
    pieces = sum(len(split.pieces) for split in training.values())
    share = 1 << 62 if data.tokenizer.reads_all_text else SAMPLE // max(1, pieces)

    def texts() -> Iterator[str]:
        for name, (source, rows, work) in training.items():
            read = PieceReader(source, rows, root / name)
            yield from sample_texts(read, work, rows.text_columns, share)

    # One that is read from a file takes no time
    with reporting("tokenizer", None if data.tokenizer.files() else report):
        return fit_tokenizer(data.tokenizer, texts)


def find_labels(
    row: R.RowSchema, training: Splits, root: Location, report: ReportProgress | None
) -> list[str] | None:
    """Return the class names in order: those given, or those of the training data, numbers sorted
    by value."""
    if row.label_column is None:
        return None
    if row.labels:
        return list(row.labels)
    seen: set[str] = set()
    for name, (source, rows, work) in training.items():
        column = rows.label_column
        assert column is not None
        declared_names = format_of(source).class_names(source, work, column)
        if declared_names is not None and len(training) == 1:
            return list(declared_names)
        read = PieceReader(source, rows, root / name)
        with reporting("classes", report):
            for item in (i for n, piece in enumerate(work) for i in read(n, piece, (column,))):
                if isinstance(item, SourceRow):
                    seen.update(class_names(item.fields.get(column)))
    return sorted_classes(seen)


# The index


def write_index(
    split: Location, tasks: list[PieceTask], common: list[Any], max_bad_rows: float
) -> None:
    """Write the index if every shard is finished; its bytes do not depend on the process."""
    shards = list(filter(None, (shard_facts(split, task) for task in tasks)))
    if len(shards) < len(tasks):
        return
    remove_strays(split, tasks)
    rows = sum(shard["rows"] for shard in shards)
    bad = [entry for shard in shards for entry in shard["quarantine"]]
    write_quarantine(split, rows, bad, max_bad_rows)
    kept = ("file", "rows", "tokens", "sentences", "sha256")
    named = [{name: shard[name] for name in kept if name in shard} for shard in shards]
    index = {
        "fingerprint": index_fingerprint(common[1], common[3:], shards),
        "rows": rows,
        "shards": named,
    }
    write_if_changed(split / "index.json", seal_json(index))
    remove_scratch(split, len(tasks))


def remove_strays(split: Location, tasks: list[PieceTask]) -> None:
    """Remove the shards of longer data, and the temporary files of a killed run."""
    shard_names = {f"{task.number:05d}" for task in tasks}
    for path in finished_shards(split):
        if path.stem not in shard_names:
            path.unlink(missing_ok=True)
            path.with_suffix(".arrow").unlink(missing_ok=True)
    for path in split.glob(".*.tmp"):
        if is_stale_temporary(path):
            path.unlink(missing_ok=True)
