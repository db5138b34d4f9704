"""The data of a fine-tuning: what is read of the files, prepared, with the task and the model that they decide."""

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .. import recipe as R
from .. import spec as S
from ..data.files import expand
from ..data.folder_files import find_file
from ..data.formats.squad import iterate_articles
from ..data.order import permute
from ..data.prepare import prepare
from ..data.reading.examples import Examples, expected_rows, find_examples
from ..data.reading.table import open_table
from ..data.store import Store, open_store
from ..data.tokenizer import Tokenizer
from ..interop.describe import read_folder
from ..recipe.cells import ClassName
from ..storage import write_if_changed
from ..tasks.base import max_row_length
from . import images, text_to_text
from .model import text_to_text_format, with_layer_mix, with_task_head
from .options import TuneOptions

Report = Callable[[str], None]
MARK = ".tune"  # an empty file in a folder that a search made
VALIDATION_FRACTION = 0.1  # of the rows, where no validation data are given
LONGEST, WINDOW, POOLS = (
    512,
    384,
    32,
)  # tokens of a row, of a window of a context; batches that are sorted together


class PreparedData(NamedTuple):
    """What the data and the checkpoint decide; the data are prepared."""

    summary: str
    name: str  # of the task
    task: R.Task
    model: S.Spec
    data: R.Data
    batch: R.FixedBatch
    workers: int = 0


def prepare_images(
    options: TuneOptions, folder: Path, start: Path, report: Report, progress: Any
) -> PreparedData:
    images.check_options(options, read_folder(start)[1])
    sources = images.image_sources(options)
    claim(folder)
    data = R.Data(
        rows=sources.rows,
        train=sources.train,
        valid=sources.valid,
        prepared_folder=str(folder / "prepared"),
        max_bad_row_fraction=options.max_bad_row_fraction,
    )
    prepare(data, report=progress)
    train, valid = (open_store(folder / "prepared", split) for split in ("train", "valid"))
    summary = images.describe_images(sources, train, valid)
    report(summary)
    spec = images.with_image_head(read_folder(start)[1], train.meta.labels or (), options)
    spec = with_layer_mix(spec, options)
    batch = R.FixedBatch(size=options.batch_size, length=spec.grid_cells + spec.extra_tokens)
    task = images.image_task(spec, start, options)
    return PreparedData(summary, images.TASK, task, spec, data, batch, workers=1)


def prepare_texts(
    options: TuneOptions, folder: Path, start: Path, report: Report, progress: Any
) -> PreparedData:
    tokenizer = tokenizer_of(start)
    if options.image_size is not None:
        raise ValueError(
            f"--image-size is for images, and {options.checkpoint} reads text; leave it out"
        )
    detected = detect_for_model(options, read_folder(start)[1])
    for line in (detected.summary, *detected.notes):
        report(line)
    spec = with_layer_mix(with_task_head(read_folder(start)[1], start, detected, options), options)
    task = build_task_value(options, detected, spec, start)
    claim(folder)
    if detected.valid is None:
        detected = split_validation(detected, folder, options.seed)
    most = min(options.max_length or LONGEST, max_row_length(spec) or LONGEST)
    row = detected.row
    if isinstance(row, R.ContextQuestions):
        row = question_windows(options, detected, tokenizer, most)
    data = R.Data(
        rows=row,
        train=detected.train,
        valid=detected.valid,
        tokenizer=R.TokenizerFile(path=tokenizer),
        prepared_folder=str(folder / "prepared"),
        max_bad_row_fraction=options.max_bad_row_fraction,
    )
    prepare(data, report=progress)
    length = (
        row.max_length
        if isinstance(row, R.ContextQuestions)
        else options.max_length
        or row_length_quantile(open_store(folder / "prepared", "train"), row, most)
    )
    batch = R.FixedBatch(
        size=options.batch_size, length=length, sort_pool=POOLS * options.batch_size
    )
    return PreparedData(detected.summary, detected.task, task, spec, data, batch)


def question_windows(
    options: TuneOptions, detected: Examples, tokenizer: str, most: int
) -> R.ContextQuestions:
    if options.max_length is None:
        most = question_window_length(detected, Tokenizer.load(tokenizer), min(most, WINDOW))
    return R.ContextQuestions(max_length=most, stride=min(128, most // 2))


def claim(folder: Path) -> None:
    """Mark the folder as ours, so that a search stopped before its first result finds it again."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARK).touch()


def detect_for_model(options: TuneOptions, spec: S.Spec) -> Examples:
    """Detect the task for this model. A decoder reads two texts and a score in both orders: GPT's similarity."""
    to_text = text_to_text.is_text_to_text(options, spec)
    similar = options.task == "similarity"
    task = None if similar or to_text else options.task
    table = open_table(
        expand(options.data),
        options.columns,
        options.column_names,
        options.label,
        expected=R.TemplatedPairs() if to_text else expected_rows(task),
        max_bad_rows=options.max_bad_row_fraction,
    )
    valid = table.open_like(expand(options.valid)) if options.valid else None
    texts = text_to_text.find_text_to_text(options, table, valid) if to_text else None
    if texts is not None:
        return texts
    detected = find_examples(table, valid, task)
    pair = isinstance(detected.row, R.LabelledTexts) and detected.row.second_text is not None
    if similar and not pair:
        raise ValueError(
            f"{options.data[0]}: --task similarity reads two texts and a label; name them: --columns TEXT TEXT LABEL"
        )
    if similar or (
        pair and detected.task == "regress" and options.task is None and spec.encoder is None
    ):
        hint = "" if similar else "; --task regress reads one order"
        return detected._replace(
            task="similarity",
            summary=f"{detected.summary.rpartition(': ')[0]}: similarity, read in both orders{hint}",
        )
    return detected


def build_task_value(
    tune_options: TuneOptions, detected: Examples, spec: S.Spec, start: Path
) -> R.Task:
    task, options = detected.kind, dict[str, Any]()
    names = {field.name for field in fields(task)}  # type: ignore[arg-type]
    if task.keeps_decoder and "input_format" in names:
        options["input_format"] = text_to_text_format(start, spec)
    if detected.task == "similarity":
        options["both_orders"] = True
    if tune_options.lm_weight:
        options["lm_weight"] = tune_options.lm_weight
        auxiliary = "lm_weight" in names and spec.decoder is not None
        if not auxiliary or read_folder(start)[1].head != S.LMHead(tied=True):
            raise ValueError(
                f"--lm-weight {tune_options.lm_weight:g} is for texts, pairs and endings of a decoder whose language modelling head is "
                "its token table, such as GPT-2; leave it out"
            )
    return task.for_model(spec, **options)


def tokenizer_of(start: Path) -> str:
    if not find_file(start, "tokenizer.json"):
        raise ValueError(
            f"{start} holds no tokenizer.json; put the one that the model was trained with beside its weights"
        )
    return str((start / "tokenizer.json").resolve())


def split_validation(detected: Examples, folder: Path, seed: int) -> Examples:
    """Hold out a tenth of the rows, or of SQuAD's articles; always the same ones."""
    data_folder = folder / "data"
    data_folder.mkdir(parents=True, exist_ok=True)
    if detected.train.format == "squad":
        parts: list[Any] = [
            article for path in detected.train.paths for article in iterate_articles(path)
        ]
        what, ending = "articles", "json"
    else:
        parts, what, ending = (
            [plain_row(row, detected.row) for row in detected.rows],
            "rows",
            "jsonl",
        )
    if len(parts) < 2:
        raise ValueError(
            f"{detected.train.paths[0]}: one {what[:-1]} cannot be split; give --valid"
        )
    count = max(1, round(VALIDATION_FRACTION * len(parts)))
    chosen = set(permute(np.arange(count), len(parts), seed).tolist())
    sides = {
        "train": [p for i, p in enumerate(parts) if i not in chosen],
        "valid": [p for i, p in enumerate(parts) if i in chosen],
    }
    for side, rows in sides.items():
        text = (
            json.dumps({"data": rows})
            if ending == "json"
            else "".join(json.dumps(row, default=str) + "\n" for row in rows)
        )
        check_same_rows(data_folder / f"{side}.{ending}", text, detected.train.paths)
        write_if_changed(data_folder / f"{side}.{ending}", text.encode())
    train, valid = (
        R.Source(
            paths=(str(data_folder / f"{side}.{ending}"),),
            format="squad" if ending == "json" else "jsonl",
        )
        for side in sides
    )
    return detected._replace(
        train=train,
        valid=valid,
        summary=f"{detected.summary}; {count:,} of {len(parts):,} {what} held out",
    )


def check_same_rows(path: Path, text: str, inputs: Sequence[str]) -> None:
    """Raise ValueError if a file that would be written is an input, or has other rows, from which trials were trained."""
    if path.exists() and any(os.path.exists(each) and path.samefile(each) for each in inputs):
        raise ValueError(f"--data {path} would be overwritten; give another --output")
    trials = path.parent.parent.glob("trial-*/recipe.json")
    if any(trials) and path.exists() and path.read_text("utf-8") != text:
        raise ValueError(
            f"{path} holds other rows, which trials were trained on; undo the change of the data or --seed, or give another --output"
        )


def plain_row(fields: dict[str, Any], row: R.RowSchema) -> dict[str, Any]:
    """Return the cells that are read; JSON keeps one side of a `ClassName`, and this is the one that is read."""
    cells = {name: fields.get(name) for name in row.columns}
    column = row.number_column or ""
    cell = cells.get(column)
    return cells | {column: cell.number} if isinstance(cell, ClassName) else cells


def row_length_quantile(store: Store, row: R.RowSchema, max_length: int) -> int:
    """Return the 99th percentile of the row lengths, for tags the maximum, rounded up to a multiple of 8."""
    if isinstance(row, R.TemplatedPairs):
        sides = [store.lengths(np.arange(len(store)), side) for side in ("source", "target")]
        return round_up_to_8(float(np.quantile(np.max(sides, axis=0) + 2, 0.99)), max_length)
    columns = row.length_columns
    lengths = (
        np.sum([store.lengths(np.arange(len(store)), column) for column in columns], axis=0)
        + len(columns)
        + 1
    )
    return round_up_to_8(
        float(lengths.max() if isinstance(row, R.TaggedWords) else np.quantile(lengths, 0.99)),
        max_length,
    )


def question_window_length(detected: Examples, tokenizer: Tokenizer, max_length: int) -> int:
    some = detected.rows[:: max(1, len(detected.rows) // 2000)]
    question_lengths = np.diff(
        tokenizer.encode_many([row["question"] for row in some])[1], prepend=0
    )
    read = np.diff(tokenizer.encode_many([row["context"] for row in some])[1], prepend=0)
    return round_up_to_8(float(np.quantile(question_lengths + read + 3, 0.99)), max_length)


def round_up_to_8(length: float, max_length: int) -> int:
    return min(max_length, max(16, 8 * -(-int(np.ceil(length)) // 8)))
