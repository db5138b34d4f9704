"""The data of an evaluation: a split of the run's data, or files."""

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

# transformers' own name of a class without one, or a number
PLACEHOLDER = re.compile(r"(LABEL_)?\d+")


def task_of(opened: LoadedModel, name: str | None) -> R.Task:
    """Return what a model is for: as its run's recipe says, or the task of a name on the command
    line. Images are seen as all verbs see them: those that the run validated on stay as they were,
    and others are brought to their size."""
    if name is None and opened.recipe is not None:
        return with_transforms(opened.recipe.task.for_inference(opened.recipe.data.rows), opened)
    if name is None:
        raise ValueError(
            f"{opened.name} is a model without a recipe; "
            f"say what it does with --task {'|'.join(R.task_names())}, "
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
    """Load files in the format of the run's data, where it has some;
    other columns are detected and reported."""
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
        raise ValueError(f"{', '.join(paths)}: not one row can be read; give a file with rows")
    tokenizer = model.require_tokenizer if row.text_columns else None
    return EvaluationData(InMemoryStore(good.rows, row, tokenizer, labels), table.source)


def default_rows(model: LoadedModel, task: R.Task) -> R.RowSchema:
    """What a task reads; of its rows, those of images for a model of images."""
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
    """Return the row schema if its columns exist;
    else the one that the columns suggest for the task."""
    if not columns and all(name in rows[0] for name in row.columns):
        return row
    # Their further fields stay
    like = row if isinstance(row, R.LabelledImages | R.Documents) else None
    schema = task.infer_rows(rows, columns, name=task.name, row=like)
    if not columns:
        report(describe_columns(schema))
    return schema


def describe_columns(row: R.RowSchema) -> str:
    """Return the detected columns in one line."""
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
    """Return the rows with the model's labels in place of class numbers,
    in a file that has none of these labels.

    Args:
        rows: of the file.
        column: of the class.
        labels: of the model.

    Raises:
        ValueError: if both name their classes, and differently: their order tells nothing.
    """
    cells = [item.fields.get(column) for item in rows]
    names = next((cell.names for cell in cells if isinstance(cell, ClassName)), ())
    if not {*names, *map(str, cells)}.isdisjoint(labels):
        return rows
    if not any(all(map(PLACEHOLDER.fullmatch, of_one)) for of_one in (names, labels)):
        raise ValueError(
            f"its classes {listed(names)} are none of the model's, {listed(labels)}; "
            "give a file with these, or fine-tune on the file with weft tune"
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
