"""Examples for fine-tuning: the task, columns and classes of a table."""

from collections.abc import Sequence
from typing import NamedTuple

from ... import recipe as R
from ...recipe.data.formats import Fields
from ...support.registry import members
from ...support.synonyms import suggest
from .column_names import check_columns_exist
from .columns import typical_first
from .formats.image_folder import FOLDER
from .formats.text import TextFormat
from .labels import format_labels, with_labels, with_tags
from .quarantine import allowed_bad_rows
from .table import Table, Tables, UsableRows


class Examples(NamedTuple):
    """Training and validation examples, with notes that report them."""

    task: str
    train: R.Source
    valid: R.Source | None
    row: R.RowSchema
    usable: UsableRows  # of training
    valid_rows: list[Fields]
    summary: str
    notes: tuple[str, ...] = ()  # about rows that are set aside

    @property
    def rows(self) -> list[Fields]:
        """Return the fields of the training rows."""
        return [item.fields for item in self.usable.rows]

    @property
    def kind(self) -> type[R.Task]:
        """Return the class of the task; for a pair in both orders, the labels decide."""
        task = R.task_named(self.task)
        number = getattr(self.row, "numeric_label", False)
        return R.task_named(task.numeric_task) if number and task.numeric_task else task

    @property
    def labels(self) -> tuple[str, ...] | None:
        return self.row.labels


def expected_rows(task: str | None) -> R.RowSchema | None:
    """Return the row schema of a task whose examples have a format of their own; None: any format
    may hold them."""
    if task is None:
        return None
    if task not in R.tunable_names():
        raise ValueError(f"--task {task}: {suggest(task, R.tunable_names())}")
    reader = R.task_named(task)
    return reader.default_rows() if reader.file_format else None


def find_examples(tables: Tables, task: str | None = None) -> Examples:
    """Return the rows of tables of texts as examples of a task.

    Args:
        tables: the training and the validation data.
        task: the name of the task (default: the one whose examples the table looks most like).

    Raises:
        ValueError: if no task matches, or if too many rows are bad.
    """
    table, valid, _ = tables
    check_format(table, task)
    fields = table.require_rows()
    check_validation(valid)
    other = [item.fields for item in valid.rows] if valid else []
    try:
        requested = [*table.requested, *([table.label] if table.label else [])]
        check_columns_exist(fields[0], requested)
        task, row = infer_task(table, typical_first(fields), other, task)
    except ValueError as error:
        raise ValueError(f"{table.path}: {error}") from None
    return build_examples(tables, task, row)


def build_examples(tables: Tables, task: str, row: R.RowSchema, summary: str = "") -> Examples:
    """Return the rows that fit a row schema; `summary` is described from them where it is not
    given.
    """
    table, valid, _ = tables
    good = table.usable(row)
    other = valid.usable(row) if valid else None
    rows = [item.fields for item in good.rows]
    return Examples(
        task,
        table.source,
        valid.source if valid else None,
        row,
        good,
        [item.fields for item in other.rows] if other else [],
        summary or f"{table.path}: {describe_rows(task, row, rows, table.source)}",
        (*good.notes(), *(other.notes("validation") if other else ())),
    )


def check_format(table: Table, task: str | None) -> None:
    """Raise ValueError if the format is that of another task, or holds no text."""
    if table.format == FOLDER.name:  # the names of its files would be taken for texts
        raise ValueError(f"{table.path} is a directory of images, not text; give a file of texts")
    if table.format == TextFormat.name:
        raise ValueError(
            f"{table.path} is plain text, but {task or 'fine-tuning'} needs rows with columns; "
            "give CSV, TSV, JSON lines or Parquet"
        )
    owners = {reader.file_format: reader for reader in members(R.Task) if reader.file_format}
    needed = R.task_named(task).file_format if task else None
    if task is not None and table.format != needed and (needed or table.format in owners):
        format = needed or table.format
        raise ValueError(
            f"{table.path} is {'not ' if needed else ''}in the format {format}, "
            f"which is what the task {owners[format].name} reads"
        )


def check_validation(valid: Table | None) -> None:
    if valid is not None and not valid.rows and not valid.bad:
        raise ValueError(
            f"{', '.join(valid.source.paths)} has no row for validation; give a file with rows"
        )


def infer_task(
    table: Table, rows: Sequence[Fields], other: Sequence[Fields], task: str | None
) -> tuple[str, R.RowSchema]:
    """Return the name of the task and its row schema, with the classes of all rows."""
    reader = R.best_match(table.facts) if task is None else R.task_named(task)
    if reader.numeric_task is None:  # else the labels decide
        task = task or reader.name
    row = reader.infer_rows(rows, table.requested, table.label, task or "")
    if isinstance(row, R.TaggedWords):
        return reader.name, with_tags(row, [*rows, *other])
    if not isinstance(row, R.LabelledTexts):
        return task or reader.name, row
    allowed = allowed_bad_rows(len(rows), table.max_bad_rows)
    row = with_labels(row, [*rows, *other], task, allowed)
    if row.numeric_label:
        return reader.numeric_task or reader.name, row
    return task or ("pair" if row.second_text else reader.name), row


# One line


def describe_rows(task: str, row: R.RowSchema, rows: list[Fields], source: R.Source) -> str:
    """Describe what is read in one sentence."""
    if isinstance(row, R.ContextQuestions):
        without = sum(row["answer_start"] < 0 for row in rows)
        answers = f"{without:,} without an answer" if without else "each with an answer"
        return f"{len(rows):,} questions (SQuAD), {answers}: answer"
    form = str(source.format)
    if source.delimiter not in (None, ","):
        form += f" by {source.delimiter!r}"
    if source.format in ("csv", "tsv") and not source.has_header:
        form += ", no header"
    return f"{len(rows):,} rows ({form}), {describe_columns(row)}{task}"


def describe_columns(row: R.RowSchema) -> str:
    labels = row.labels or ()
    match row:
        case R.LabelledTexts():
            texts = " and ".join(map(repr, row.text_columns))
            what = f"{len(labels)} classes in {row.label!r} ({format_labels(labels)})"
            if row.numeric_label:
                what = f"numbers in {row.label!r}"
            return f"text in {texts}, {what}: "
        case R.ChoiceQuestions():
            return (
                f"context in {row.context!r}, {len(row.endings)} endings, "
                f"the right one's number in {row.label!r}: "
            )
        case R.TaggedWords():
            return (
                f"words in {row.words!r}, "
                f"{len(labels)} tags in {row.tags!r} ({format_labels(labels)}): "
            )
    return ""
