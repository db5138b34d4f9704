"""`weft prepare`: from sources to shards, once. Any number of parts on any machines give the same bytes; an interrupted run
continues."""

import base64
import os
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from .. import recipe as R
from ..addresses import Location, locate
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
from .drop_table import PieceReader
from .files import MissingFile, file_identity, find
from .filtering import check_filters, filter_rows, remove_filters, remove_scratch
from .jobs import PieceTask
from .ownership import (
    check_no_foreign_files,
    check_same_filters,
    check_same_pieces,
    check_same_settings,
    finished_shards,
    read_data_json,
)
from .quarantine import write_quarantine
from .shard_builder import SplitJob, shard_facts
from .source import format_of, reading_settings, resolve_source, split_source
from .store import PreparedFolder
from .task_runner import PrepareProgress as PrepareProgress
from .task_runner import ReportProgress, TaskRunner, reporting
from .tokenizer import Tokenizer
from .train_tokenizer import fit_tokenizer, sample_texts

VERSION = 1  # of the layout on disk
SAMPLE = 200_000_000  # characters that a tokenizer learns from, spread over the pieces


class SplitWork(NamedTuple):
    """A source, what its rows hold, and its pieces."""

    source: R.Source
    rows: R.RowSchema
    pieces: list[Piece]


Splits = dict[str, SplitWork]  # by the name of the folder
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
) -> Location:
    """Prepare both splits and return their folder, local or in object storage. `shard` = (i, n) prepares every n-th piece from the i-th;
    the process that finds all shards finished writes the index. A finished `prepared_folder` of the recipe is used without its sources.
    `verify` compares the SHA-256 of finished shards and writes damaged ones again. A finished folder of other data is replaced only with
    `overwrite`, since a run may be reading it. `on` is where the work is done: in `workers` processes here, or on a Ray cluster."""
    index, count = shard or (0, 1)
    if not 0 <= index < count:
        raise ValueError(f"shard = {index} of {count}: give a number from 0 to {count - 1}")
    try:
        splits = plan_splits(data)
    except MissingFile:
        if (
            data.prepared_folder
            and locate(folder or data.prepared_folder) == locate(data.prepared_folder)
            and is_complete(data, locate(data.prepared_folder))
        ):
            return locate(data.prepared_folder)
        raise
    root = locate(folder or data.prepared_folder or Path("prepared") / fingerprint(data, splits))
    check_no_foreign_files(root, splits)
    if not overwrite:
        check_same_settings(root, tokenizer_and_labels_key(data, training_splits(data, splits)))
    root.mkdir(parents=True, exist_ok=True)
    run = TaskRunner(workers or available_cores(), on, report)
    dropped = filter_splits(splits, root, run, (index, count), overwrite)
    if dropped is None:
        return root  # other parts are to be scanned first
    tokenizer, labels = prepare_tokenizer_and_labels(
        data, training_splits(data, splits), root, report
    )
    for name, (source, rows, work) in splits.items():
        split = root / name
        split.mkdir(exist_ok=True)
        common = [
            VERSION,
            to_plain(rows),
            reading_settings(source),
            tokenizer.sha256 if tokenizer else None,
            labels,
        ]
        tasks = shard_tasks(common, work, dropped.get(name))
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
                to_plain(rows),
                labels,
                file,
                data.max_bad_row_fraction,
            )
            run(job, todo, name)
        write_index(split, tasks, common, data.max_bad_row_fraction)
    return root


def available_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def shard_tasks(common: list[Any], work: list[Piece], dropped: list[str] | None) -> list[PieceTask]:
    """Return the work on shards. What is dropped from a piece may depend on all others, so it is part of the fingerprint."""
    return [
        PieceTask(
            i,
            piece,
            digest_plain(common, piece.identity, piece.spans, *([dropped[i]] if dropped else [])),
        )
        for i, piece in enumerate(work)
    ]


def filter_splits(
    splits: Splits, root: Location, run: TaskRunner, part: tuple[int, int], overwrite: bool
) -> DropDigests | None:
    """Apply the filters of all sources; None if other parts are to be scanned first."""
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
        result = filter_rows(split, source, rows, work, partial(run.stage, name), part)
        complete = complete and result is not None
        digests[name] = result or []
    return digests if complete else None


def plan_splits(data: R.Data) -> Splits:
    resolved = [
        part._replace(source=resolve_source(part.source, part.rows)) for part in data.parts()
    ]
    return {name: SplitWork(source, rows, split_source(source)) for name, source, rows in resolved}


def training_splits(data: R.Data, splits: Splits) -> Splits:
    return {part.name: splits[part.name] for part in data.parts("train")}


def prepared_location(data: R.Data) -> Location:
    """Return the folder of prepared data: the one that the data name, or one by what they consist of."""
    return locate(data.prepared_folder or Path("prepared") / fingerprint(data))


def is_complete(data: R.Data, root: Location) -> bool:
    """Return whether the folder has everything that a run on these data reads, each part with the rows that it asks for."""
    data_json = read_data_json(root)
    if data_json is None or digest_plain(data_json["rows"]) != digest_plain(to_plain(data.rows)):
        return False
    for part in data.parts():
        if not (root / part.name / "index.json").exists():
            return False
        index = PreparedFolder(str(root)).read_sealed_json(f"{part.name}/index.json")
        meta = [data_json["sha256"], data_json["labels"]]
        if index["fingerprint"] != index_fingerprint(to_plain(part.rows), meta, index["shards"]):
            return False
    return True


def find_difference(data: R.Data, root: Location) -> str:
    """Return why a run cannot read a folder that it does not prepare itself: unfinished, or of other settings or files; "" if it can.
    Without the sources, what the folder holds is used."""
    if not all((root / part.name / "index.json").exists() for part in data.parts("train")):
        return f"{root} is not prepared yet; run weft prepare with this recipe first"
    try:
        training = training_splits(data, plan_splits(data))
        check_same_settings(root, tokenizer_and_labels_key(data, training))
    except (
        MissingFile,
        OSError,
    ) as error:  # removed, or on a network that this machine does not reach
        return "" if is_complete(data, root) else str(error)
    except ValueError as error:
        return str(error)
    return ""


def index_fingerprint(rows: Any, meta: list[Any], shards: list[dict[str, Any]]) -> str:
    """Return the fingerprint of a split: of its row schema, of tokenizer and labels, and of all shards."""
    return digest_plain(rows, meta, [shard["sha256"] for shard in shards])


def fingerprint(data: R.Data, splits: Splits | None = None) -> str:
    """Return the fingerprint of the data value and the content of its files."""
    content = {
        name: split_identity(data, split) for name, split in (splits or plan_splits(data)).items()
    }
    return digest_plain(VERSION, to_plain(data.rows), *tokenizer_identity(data), content)[:16]


def split_identity(data: R.Data, split: SplitWork) -> list[Any]:
    content = [reading_settings(split.source), [[p.identity, p.spans] for p in split.pieces]]
    return content if split.rows == data.rows else [to_plain(split.rows), *content]


def tokenizer_identity(data: R.Data) -> list[Any]:
    files = data.tokenizer.files() if data.tokenizer else ()
    return [to_plain(data.tokenizer), [file_identity(find(path)[0]) for path in files]]


# What all pieces need: a tokenizer, and the names of classes


def tokenizer_and_labels_key(data: R.Data, training: Splits) -> str:
    return digest_plain(
        VERSION,
        to_plain(data.rows),
        *tokenizer_identity(data),
        *(part for split in training.values() for part in split_identity(data, split)),
    )


def prepare_tokenizer_and_labels(
    data: R.Data, training: Splits, root: Location, report: ReportProgress | None
) -> tuple[Tokenizer | None, list[str] | None]:
    key = tokenizer_and_labels_key(data, training)
    with suppress(OSError, ValueError):
        data_json = read_data_json(root)
        tokenizer = Tokenizer.load(root) if data_json and data_json["tokenizer"] else None
        if (
            data_json
            and data_json["key"] == key
            and data_json["sha256"] == (tokenizer.sha256 if tokenizer else None)
        ):
            return tokenizer, data_json["labels"]
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
    return tokenizer, labels


def train_tokenizer(
    data: R.Data, training: Splits, root: Location, report: ReportProgress | None
) -> Tokenizer | None:
    if not data.rows.text_columns:
        return None
    if data.tokenizer is None:
        raise ValueError(
            f"{type(data.rows).__name__} contain text, which needs a tokenizer; give Data(tokenizer=…)"
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
    """Return the class names in order: those given, or those of the training data, numbers sorted by value."""
    if row.label_column is None:
        return None
    if row.labels:
        return list(row.labels)
    seen: set[str] = set()
    for name, (source, rows, work) in training.items():
        column = rows.label_column
        assert column is not None
        known = format_of(source).class_names(source, work, column)
        if known is not None and len(training) == 1:
            return list(known)
        read = PieceReader(source, rows, root / name)
        with reporting("classes", report):
            for item in (i for n, piece in enumerate(work) for i in read(n, piece, (column,))):
                if isinstance(item, SourceRow):
                    seen.update(class_names(item.fields.get(column)))
    return sorted_classes(seen)


# The index, when all is there


def write_index(
    split: Location, tasks: list[PieceTask], common: list[Any], max_bad_rows: float
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
        "fingerprint": index_fingerprint(common[1], common[3:], shards),
        "rows": rows,
        "shards": named,
    }
    write_if_changed(split / "index.json", seal_json(index))
    remove_scratch(split, len(tasks))
