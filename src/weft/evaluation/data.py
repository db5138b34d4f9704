"""Evaluation data: a split of the run's data, or files."""

import re
from collections.abc import Sequence
from typing import Any

from .. import recipe as R
from .. import spec as S
from ..data.reading.inputs import training_source
from ..data.reading.quarantine import MAX_BAD_ROWS
from ..data.reading.table import UsableRows, open_table
from ..data.shards.in_memory import InMemoryStore
from ..inference.images import with_transforms
from ..inference.methods import check_head, label_names
from ..nn.loaded_model import LoadedModel
from ..recipe.data.cells import ClassName
from ..recipe.data.formats import SourceRow
from ..support.console import Report
from ..tasks.task import EvaluationData

# The default label names of transformers
PLACEHOLDER = re.compile(r"(LABEL_)?\d+")


def task_of(opened: LoadedModel, name: str | None) -> R.Task:
    """Return the task of a model: from its run's recipe, or by its name on the command line. Images
    are transformed as in all commands: images of the run's validation are unchanged, others are
    resized."""
    if name is None and opened.recipe is not None:
        return with_transforms(opened.recipe.task.for_inference(opened.recipe.data.rows), opened)
    if name is None:
        raise ValueError(
            f"{opened.name} has no recipe; "
            f"give its task with --task {'|'.join(R.task_names())}, "
            "and --data FILE"
        )
    task = R.task_named(name)
    if task.head is not S.LMHead and isinstance(opened.model.spec.source, S.Tokens):
        check_head(opened, task)
    return with_transforms(task.for_model(opened.model.spec), opened)


def load_files(
    model: LoadedModel,
    task: R.Task,
    paths: Sequence[str],
    *,
    names: Sequence[str] = (),
    columns: Sequence[str] = (),
    max_bad_rows: float = MAX_BAD_ROWS,
    report: Report,
) -> EvaluationData:
    """Load files in the format of the run's data if it has any; other columns are detected and
    reported."""
    trained = task_of(model, None) if model.recipe is not None else None
    run_data = (
        model.recipe.data if model.recipe is not None and type(trained) is type(task) else None
    )
    row = run_data.rows if run_data is not None else default_rows(model, task)
    table = open_table(
        paths,
        columns,
        names,
        expected=row,
        reference=training_source(run_data) if run_data is not None else None,
        assume_header=True,
        max_bad_rows=max_bad_rows,
    )
    rows = table.rows
    labels = None
    try:
        if rows and not isinstance(row, R.ContextQuestions | R.ImagesWithBoxes):
            row = match_columns(row, task, [item.fields for item in rows], columns, report)
        labels = label_names(model) if row.label_column else None
        if labels:
            rows = labels_by_number(rows, row.label_column or "", labels)
    except ValueError as error:
        raise ValueError(f"{table.path}: {error}") from None
    good = table.usable(row, labels, UsableRows(rows, table.bad))
    for note in good.notes():
        report(note)
    if not good.rows:
        raise ValueError(f"{', '.join(paths)}: no row is readable; give a file with rows")
    tokenizer = model.require_tokenizer if row.text_columns else None
    return EvaluationData(InMemoryStore(good.rows, row, tokenizer, labels), table.source)


def default_rows(model: LoadedModel, task: R.Task) -> R.RowSchema:
    """Return the default row schema of a task; for image models, its image schema."""
    if isinstance(model.model.spec.source, S.Tokens):
        return task.default_rows()
    schemas: tuple[type[R.RowSchema], ...] = task.row_schemas
    return next((rows() for rows in schemas if rows().image_columns), task.default_rows())


def match_columns(
    row: R.RowSchema,
    task: R.Task,
    rows: list[dict[str, Any]],
    columns: Sequence[str],
    report: Report,
) -> R.RowSchema:
    """Return the row schema if its columns exist, else one with the columns detected for the
    task."""
    if not columns and all(name in rows[0] for name in row.columns):
        return row
    # Additional fields are kept
    like = row if isinstance(row, R.LabelledImages | R.Documents) else None
    schema = task.infer_rows(rows, columns, name=task.name, row=like)
    if not columns:
        report(describe_columns(schema))
    return schema


def describe_columns(row: R.RowSchema) -> str:
    """Return a line with the detected columns."""
    parts = {
        "image": "image",
        "text": "text",
        "second_text": "second text",
        "label": "label",
        "words": "words",
        "tags": "tags",
        "source": "source",
        "target": "target",
        "context": "context",
    }
    return "reading " + ", ".join(
        f"{getattr(row, name)!r} as {what}"
        for name, what in parts.items()
        if getattr(row, name, None)
    )


def labels_by_number(
    rows: list[SourceRow], column: str, labels: tuple[str, ...]
) -> list[SourceRow]:
    """Return the rows with the model's labels in place of class numbers, if the file has none of
    these labels.

    Args:
        rows: the rows of the file.
        column: the column of the class.
        labels: the labels of the model.

    Raises:
        ValueError: if both name their classes, but differently, so that the order has no meaning.
    """
    cells = [item.fields.get(column) for item in rows]
    names = next((cell.names for cell in cells if isinstance(cell, ClassName)), ())
    if not {*names, *map(str, cells)}.isdisjoint(labels):
        return rows
    if not any(all(map(PLACEHOLDER.fullmatch, of_one)) for of_one in (names, labels)):
        raise ValueError(
            f"its classes {listed(names)} are not among the model's classes {listed(labels)}; "
            "give a file with these classes, or fine-tune on the file with weft tune"
        )
    label_of = {str(i): label for i, label in enumerate(labels)}
    if len(names) == len(labels):
        label_of |= dict(zip(names, labels, strict=True))
    return [
        item._replace(fields=item.fields | {column: label_of[str(cell)]})
        if str(cell) in label_of
        else item
        for item, cell in zip(rows, cells, strict=True)
    ]


def listed(names: Sequence[str]) -> str:
    return ", ".join([*names[:8], "…"] if len(names) > 8 else names)
