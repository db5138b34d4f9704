"""Suggestion of a recipe for a table and a task, from random weights or a checkpoint."""

import os
import re

from .. import recipe as R
from ..data.reading.table import Table, Tables
from .boxes import suggest_detection
from .checkpoint import Checkpoint, open_checkpoint
from .images import suggest_image_classes, suggest_image_tuning
from .opening import Reading, check_tunable, expected_schema, open_tables
from .pretrain import OBJECTIVES, suggest_pretraining
from .suggestion import Budget, FineTuning, Suggestion
from .text_tuning import suggest_text_tuning
from .texts import suggest_labelled_texts, suggest_text_to_text, suggest_translation


def suggest_recipe(
    table: Table,
    task: str | None = None,
    checkpoint: str | None = None,
    budget: Budget | None = None,
    *,
    valid: Table | None = None,
) -> R.Recipe:
    """Suggest a recipe for a table. Writes nothing and trains nothing.

    Args:
        table: the training data, from `open_table`.
        task: the name of a task, such as "classify", or of a pre-training objective, such as
            "masked-lm" (default: the best match for the table).
        checkpoint: a folder, a run, or a hub name to start from (default: random weights).
        budget: epochs, rows per step, tokens per row and validations (default: from the task and
            the data).
        valid: the validation data (default: a held-out part of the table).

    Returns:
        The recipe, whose run is called "mine".

    Raises:
        ValueError: if the table does not suit the task or the checkpoint.
    """
    start = None if checkpoint is None else open_checkpoint(checkpoint)
    tables = Tables(table, valid)
    if table.expected is None and expected_schema(task, start) is not None:
        tables = reopened(tables, task, start)
    stem = re.sub(r"[^A-Za-z0-9_.-]", "-", os.path.basename(table.path).split(".")[0]).strip("-._")
    return suggest(tables, task, start, budget=budget or Budget()).named(stem or "mine").recipe


def reopened(tables: Tables, task: str | None, checkpoint: Checkpoint | None) -> Tables:
    """Reopen the files of tables as a task or a checkpoint expects them."""
    table, valid, _ = tables
    names = table.source.column_names if not table.source.has_header else ()
    reading = Reading(table.requested, names, table.label, table.max_bad_rows)
    valid_paths = valid.source.paths if valid is not None else ()
    return open_tables(table.source.paths, valid_paths, reading, task, checkpoint)


def suggest(
    tables: Tables,
    task: str | None = None,
    checkpoint: Checkpoint | None = None,
    *,
    budget: Budget = Budget(),
    tuning: FineTuning = FineTuning(),
) -> Suggestion:
    """Suggest a recipe with the facts behind it; `suggest_recipe` describes the arguments.

    Args:
        tables: the training and the validation data.
        task: the name of a task or of an objective.
        checkpoint: the checkpoint to fine-tune.
        budget: the training budget.
        tuning: the fine-tuning settings.
    """
    if checkpoint is None:
        return suggest_from_scratch(tables, task, budget)
    check_tunable(task)
    fine_tune = suggest_image_tuning if checkpoint.reads_images else suggest_text_tuning
    return fine_tune(tables, task, checkpoint, tuning, budget)


def suggest_from_scratch(tables: Tables, task: str | None, budget: Budget) -> Suggestion:
    """Suggest a recipe for a model with random weights."""
    if task is None and tables.train.format == "text":
        task = "pretrain"
    if task in OBJECTIVES:
        return suggest_pretraining(tables, task, budget)
    if task == "detect":
        return suggest_detection(tables, budget)
    if task == "translate":
        return suggest_translation(tables, budget)
    if task == "text2text":
        return suggest_text_to_text(tables, budget)
    if task in (None, "classify") and tables.train.holds_images:
        return suggest_image_classes(tables, budget)
    return suggest_labelled_texts(tables, task, budget)
