"""Detect the columns, the label and the task of a data file."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from .. import recipe as R
from ..data.files import expand
from ..data.formats.image_folder import FOLDER
from ..data.formats.sniff import detect_format
from ..data.quarantine import (
    MAX_BAD_ROWS,
    allowed_bad_rows,
    bad_rows_line,
    check_bad_row_limit,
)
from ..data.reading.column_names import check_columns_exist
from ..data.reading.columns import MAX_CLASSES, ending_columns, typical_first
from ..data.reading.rows import (
    BadRowEntries,
    Fields,
    check_rows,
    load_source,
)
from ..data.source import format_of
from ..recipe.cells import class_names, is_number, list_classes, short, sorted_classes
from ..recipe.formats import SourceRow
from ..registry import members
from ..synonyms import suggest

MIN_NUMERIC_FRACTION = 0.8  # of the labels: then the others are broken numbers, not classes
MAX_SINGLETON_CLASSES = 5  # classes of one row, which are more than half of all, are no classes


class DetectedData(NamedTuple):
    """What was detected, and the lines that report it."""

    task: str
    train: R.Source
    valid: R.Source | None
    row: R.RowSchema
    rows: list[Fields]  # of training, without those that are set aside
    valid_rows: list[Fields]
    summary: str
    notes: tuple[str, ...] = ()  # about rows that are set aside

    @property
    def kind(self) -> type[R.Task]:
        """Return the class of the task; for a pair in both orders, the labels decide."""
        task = R.task_named(self.task)
        number = getattr(self.row, "numeric_label", False)
        return R.task_named(task.numeric_task) if number and task.numeric_task else task

    @property
    def labels(self) -> tuple[str, ...] | None:
        return self.row.labels


def detect_data(
    paths: Sequence[str],
    dev: Sequence[str] = (),
    task: str | None = None,
    names: Sequence[str] = (),
    columns: Sequence[str] = (),
    label: str | None = None,
    max_bad_rows: float = MAX_BAD_ROWS,
) -> DetectedData:
    """Detect rows, columns and task. `columns` are those to read, the label last unless `label` names it."""
    if task is not None and task not in R.tunable_names():
        raise ValueError(f"--task {task}: {suggest(task, R.tunable_names())}")
    files = expand(tuple(paths))
    only = {reader.file_format: reader for reader in members(R.Task) if reader.file_format}
    kind, expected = detect_text_format(files[0]), R.task_named(task).file_format if task else None
    if expected is not None and kind in ("json", "jsonl"):
        kind = expected
    if task is not None and kind != expected and (expected or kind in only):
        raise ValueError(
            f"{files[0]} is {'not ' if expected else ''}in the format {expected or kind}, "
            f"which is what the task {only[expected or kind].name} reads"
        )
    requested_columns = [*columns, *([label] if label else [])]
    train = build_source(files, kind, names, requested_columns)
    rows, bad = load_source(train)
    valid_source = (
        align_columns(train, rows, expand(tuple(dev)), requested_columns) if dev else None
    )
    other, worse = load_valid_rows(valid_source) if valid_source else ([], [])
    if not rows:
        check_bad_row_limit(0, bad, max_bad_rows)
        raise ValueError(
            f"{', '.join(paths)}: there is no {'question' if kind == 'squad' else 'row'}"
        )
    try:
        check_columns_exist(rows[0].fields, requested_columns)
        task, row = (
            (only[kind].name, only[kind].default_rows())
            if kind in only
            else detect_task(
                kind,
                [item.fields for item in rows],
                [item.fields for item in other],
                task,
                list(columns),
                label,
                max_bad_rows,
            )
        )
    except ValueError as error:
        raise ValueError(f"{files[0]}: {error}") from None
    train_rows, note = usable_rows(rows, bad, row, train, max_bad_rows, "")
    valid, more = (
        usable_rows(other, worse, row, valid_source, max_bad_rows, "validation ")
        if valid_source
        else ([], ())
    )
    return DetectedData(
        task,
        train,
        valid_source,
        row,
        train_rows,
        valid,
        f"{files[0]}: {describe_data(task, row, train_rows, train)}",
        (*note, *more),
    )


def detect_text_format(path: str) -> str:
    kind = detect_format(path)
    if kind == FOLDER.name:  # whose file names would be taken for texts
        raise ValueError(f"{path} is a folder of images, and no text; give texts")
    return kind


def load_valid_rows(source: R.Source) -> tuple[list[SourceRow], BadRowEntries]:
    rows, bad = load_source(source)
    if not rows and not bad:
        raise ValueError(f"{', '.join(source.paths)}: there is no row to validate on")
    return rows, bad


def build_source(
    paths: Sequence[str], kind: str, names: Sequence[str], columns: Sequence[str]
) -> R.Source:
    source = R.Source(paths=tuple(paths), format=kind, column_names=tuple(names))
    return format_of(source).detect_columns(source, columns)


def align_columns(
    train: R.Source, rows: list[SourceRow], paths: list[str], columns: Sequence[str]
) -> R.Source:
    """Rename columns by position, since headers of published splits differ."""
    if train.format == "conll":
        return replace(train, paths=tuple(paths))
    dev = build_source(
        paths, detect_format(paths[0]), () if train.has_header else train.column_names, columns
    )
    if dev.format in ("csv", "tsv") and train.format in ("csv", "tsv") and rows:
        first = next((item.fields for item in load_source(dev)[0]), {})
        if first and not set(rows[0].fields) <= set(first):
            return replace(dev, column_names=tuple(rows[0].fields))
    return dev


def usable_rows(
    rows: list[SourceRow],
    bad: BadRowEntries,
    row: R.RowSchema,
    source: R.Source,
    share: float,
    what: str,
) -> tuple[list[Fields], tuple[str, ...]]:
    """Return the usable rows, by the rule of `weft prepare`, and a line about the others."""
    good, wrong = check_rows(rows, row, row.labels, source.format)
    aside = sorted([*bad, *wrong], key=lambda entry: (entry["file"], entry["offset"]))
    check_bad_row_limit(len(good), aside, share)
    return [item.fields for item in good], (
        bad_rows_line(len(good), aside, what.strip()),
    ) if aside else ()


def detect_task(
    kind: str,
    rows: list[Fields],
    other: list[Fields],
    task: str | None,
    texts: list[str],
    label: str | None,
    max_bad_rows: float,
) -> tuple[str, R.RowSchema]:
    rows = typical_first(rows)
    lists = sum(isinstance(cell, list) for cell in rows[0].values())
    reader = R.best_match(R.TableFacts(kind, lists, len(ending_columns(rows[0]))))
    if task is not None:
        reader = R.task_named(task)
    elif reader.numeric_task is None:  # else the labels decide
        task = reader.name
    row = reader.infer_rows(rows, texts, label, name=task or "")
    if isinstance(row, R.TaggedWords):
        tags = {tag for fields in (*rows, *other) for tag in class_names(fields.get(row.tags))}
        seen = sorted(tags, key=lambda tag: (tag != "O", tag[2:], tag))
        if not seen:
            raise ValueError(f"{row.tags} is empty in every row; say --columns WORDS TAGS")
        return reader.name, replace(row, labels=tuple(seen))
    if not isinstance(row, R.LabelledTexts):
        return task or reader.name, row
    cells = [
        cell
        for cell in (fields.get(row.label) for fields in (*rows, *other))
        if not isinstance(cell, list) and class_names(cell)
    ]
    if not cells:
        raise ValueError(
            f"{row.label} is empty in every row; name the columns: --columns TEXT [TEXT] LABEL"
        )
    if row.numeric_label or (task is None and looks_like_regression(cells, row.label)):
        if not any(map(is_number, cells)):
            raise ValueError(
                f"{row.label} is {short(cells[0])} in a row, not a number; regress needs numbers, classify does not"
            )
        return reader.numeric_task or reader.name, replace(row, numeric_label=True)
    row = replace(
        row,
        labels=detect_classes(cells, row.label, task, allowed_bad_rows(len(rows), max_bad_rows)),
    )
    return task or ("pair" if row.second_text else reader.name), row


def looks_like_regression(cells: list[Any], label: str) -> bool:
    """Return whether most cells are numbers and not all of these are integers."""
    numbers = [float(name) for name in map(str, cells) if is_number(name)]
    if len(numbers) < MIN_NUMERIC_FRACTION * len(cells):
        return False
    if any(number % 1 for number in numbers):
        return True
    if len(set(numbers)) > MAX_CLASSES:
        raise ValueError(
            f"{label} has {len(set(numbers))} whole numbers, which may be classes or a measure; "
            "say --task classify or --task regress"
        )
    return False


def detect_classes(cells: list[Any], label: str, task: str | None, few: float) -> tuple[str, ...]:
    """Return the classes; numbers are sorted by value, as in `weft prepare`. Among integers, a few other values count as bad rows,
    unless the task is classification."""
    seen = Counter(map(str, cells))
    broken = [name for name in seen if not is_number(name)]
    if (
        task is None
        and 0 < sum(seen[name] for name in broken) <= few
        and len(seen) > len(broken) + 1
    ):
        seen = Counter({name: count for name, count in seen.items() if name not in broken})
    once = [name for name, count in seen.items() if count == 1]
    if task is None and len(once) >= MAX_SINGLETON_CLASSES and len(once) > len(seen) / 2:
        raise ValueError(
            f"{label} has {len(seen)} classes, of which {len(once)} occur once ({format_labels(once)}); is it the label? Name another: "
            "--columns TEXT [TEXT] LABEL, or say --task classify, or --task regress for numbers"
        )
    if len(seen) < 2:
        raise ValueError(
            f"every row has {label} = {short(next(iter(seen)))}; name the columns: --columns TEXT [TEXT] LABEL"
        )
    return tuple(sorted_classes(seen))


def describe_data(task: str, row: R.RowSchema, rows: list[Fields], source: R.Source) -> str:
    """Describe what is read in one sentence."""
    if isinstance(row, R.ContextQuestions):
        without = sum(row["answer_start"] < 0 for row in rows)
        return f"{len(rows):,} questions (SQuAD), {f'{without:,} without' if without else 'each with'} an answer: answer"
    form = str(source.format) + (
        f" by {source.delimiter!r}" if source.delimiter not in (None, ",") else ""
    )
    counted = f"{len(rows):,} rows ({form}{', no header' * (source.format in ('csv', 'tsv') and not source.has_header)}), "
    match row:
        case R.LabelledTexts():
            texts = f"{row.text!r} and {row.second_text!r}" if row.second_text else f"{row.text!r}"
            labels = row.labels or ()
            what = (
                f"numbers in {row.label!r}"
                if row.numeric_label
                else f"{len(labels)} classes in {row.label!r} ({format_labels(labels)})"
            )
            return f"{counted}text in {texts}, {what}: {task}"
        case R.ChoiceQuestions():
            return f"{counted}context in {row.context!r}, {len(row.endings)} endings, the right one's number in {row.label!r}: {task}"
        case R.TaggedWords():
            return f"{counted}words in {row.words!r}, {len(row.labels or ())} tags in {row.tags!r} ({format_labels(row.labels or ())}): {task}"
    return counted + task


def format_labels(names: Sequence[str]) -> str:
    return list_classes(names[:4]) + (", …" if len(names) > 4 else "")
