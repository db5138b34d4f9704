"""Tables for a suggestion: the row schema that a task or a checkpoint expects, and the files of a
folder of texts.
"""

import os
from collections import Counter
from collections.abc import Sequence
from glob import escape
from pathlib import Path
from typing import NamedTuple

from .. import recipe as R
from ..data.reading.examples import expected_rows
from ..data.reading.files import find, strip_compression_suffix
from ..data.reading.formats.sniff import UnknownFormat
from ..data.reading.quarantine import MAX_BAD_ROWS
from ..data.reading.table import Tables, open_table
from ..support.synonyms import suggest
from .checkpoint import Checkpoint
from .pretrain import OBJECTIVES


class Reading(NamedTuple):
    """How to read a table, see `open_table`, and the seed of the held-out rows."""

    columns: Sequence[str] = ()
    column_names: Sequence[str] = ()
    label: str | None = None
    max_bad_rows: float = MAX_BAD_ROWS
    seed: int = 0


def open_tables(
    paths: Sequence[str],
    valid: Sequence[str] = (),
    reading: Reading = Reading(),
    task: str | None = None,
    checkpoint: Checkpoint | None = None,
) -> Tables:
    """Open training and validation data as a task and a checkpoint expect them.

    Args:
        paths: the data files.
        valid: the validation files (default: none).
        reading: columns, and the limit of bad rows.
        task: the name of a task or of a pre-training objective (default: any).
        checkpoint: the checkpoint to fine-tune, if any.
    """
    if checkpoint is not None:
        check_tunable(task)
    if checkpoint is not None and checkpoint.reads_images and reading.column_names:
        raise ValueError(
            f"--column-names is for texts, and {checkpoint.name} reads images; remove it"
        )
    expected = expected_schema(task, checkpoint)
    if isinstance(expected, R.Documents):
        paths = text_paths(paths)
        valid = text_paths(valid)
    if isinstance(expected, R.SourceTargetPairs) and len(paths) > 2:
        raise ValueError(f"{len(paths)} files: give two parallel files, or one table, to translate")
    boxes = isinstance(expected, R.ImagesWithBoxes)
    if boxes and (len(paths) != 2 or not os.path.isdir(find(paths[1])[0])):
        raise ValueError(
            "detect needs COCO's layout: give the JSON annotations and the folder of the images"
        )
    columns, names, label, bad, seed = reading
    is_open = task is None and checkpoint is None and not columns
    try:
        table = open_table(paths, columns, names, label, expected=expected, max_bad_rows=bad)
    except UnknownFormat as error:
        if is_open:
            return open_tables(paths, valid, reading, "pretrain")
        if not isinstance(expected, R.SourceTargetPairs):
            raise
        raise ValueError(
            f"{error}; give two files with one sentence per line, or a table with two columns"
        ) from None
    if is_open and table.format == "text":
        return open_tables(paths, valid, reading, "pretrain")
    return Tables(table, table.open_like(valid) if valid else None, seed)


def check_tunable(task: str | None) -> None:
    """Raise ValueError for a task without fine-tuning."""
    if task is None or task in R.tunable_names():
        return
    if task in OBJECTIVES or task in ("translate", "detect"):
        tunable = ", ".join(R.tunable_names())
        raise ValueError(
            f"{task} starts from random weights; remove the checkpoint, or give a task "
            f"with fine-tuning: {tunable}"
        )
    raise ValueError(f"--task {task}: {suggest(task, R.tunable_names())}")


def expected_schema(task: str | None, checkpoint: Checkpoint | None) -> R.RowSchema | None:
    """Return the row schema that a task or a checkpoint requires, or None."""
    if task in OBJECTIVES:
        return R.Documents()
    if checkpoint is not None and checkpoint.reads_images:
        return R.LabelledImages()
    if task == "text2text" or (
        task is None and checkpoint is not None and checkpoint.is_text_to_text
    ):
        return R.TemplatedPairs()
    if task in ("translate", "detect"):
        return R.task_named(task).default_rows()
    return expected_rows(task)


# Folders of texts


def files_of_folder(folder: str) -> list[str]:
    """Return a pattern that matches exactly the files of a folder, or the list of files."""
    root = Path(find(folder)[0])
    names = sorted(path.relative_to(root) for path in root.rglob("*") if path.is_file())
    names = [name for name in names if not any(part.startswith(".") for part in name.parts)]
    if not names:
        raise ValueError(f"{folder} has no files; give files, or a folder with text")
    kinds = Counter(suffix_of(name.name) for name in names)
    base = escape(folder.rstrip("/") or "/")
    nested = any(len(name.parts) > 1 for name in names)
    (suffix, _), *others = kinds.most_common()
    pattern = f"{base}/{'**/' if nested else ''}*{suffix}"
    if others:
        counts = ", ".join(f"{n:,} {kind or 'without a suffix'}" for kind, n in kinds.most_common())
        raise ValueError(
            f"{folder} has files of several kinds ({counts}); give one kind, such as '{pattern}'"
        )
    files = [str(root / name) for name in names]
    same = sorted(map(os.path.realpath, find(pattern))) == sorted(map(os.path.realpath, files))
    return [pattern] if same else files


def suffix_of(name: str) -> str:
    """Return the last suffix of a file name, with the suffix of its compression."""
    plain = strip_compression_suffix(name)
    return os.path.splitext(plain)[1] + name[len(plain) :]


def text_paths(paths: Sequence[str]) -> list[str]:
    """Return paths and patterns that name each file once, with a pattern for each folder."""
    seen = set[str]()
    unique: list[str] = []
    for path in paths:
        for part in files_of_folder(path) if os.path.isdir(find(path)[0]) else [path]:
            files = find(part)
            fresh = [file for file in files if os.path.realpath(file) not in seen]
            unique += [part] if fresh == files else fresh
            seen.update(map(os.path.realpath, files))
    return unique
