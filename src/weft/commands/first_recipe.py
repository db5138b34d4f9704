"""`weft new`: what every first recipe has, whatever its data are. Every reader and every rule is that of `data` and `tuning`."""

import os
import re
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import packages_distributions
from itertools import chain, count, pairwise
from math import ceil, log2
from pathlib import Path
from typing import Any, NamedTuple

from .. import recipe as R
from ..data.quarantine import MAX_BAD_ROWS
from ..data.reading.column_names import check_columns_exist
from ..data.reading.table import Table, open_table

NAMED_PATHS = 4  # of many, in a sentence
COMMON_STEMS = {"train", "training", "data", "dataset", "all", "input", "corpus", "annotations"}


class NewOptions(NamedTuple):
    """What the user chooses: the name of the run, how a table is read, and what is learned from plain text."""

    name: str
    columns: Sequence[str] = ()
    column_names: Sequence[str] = ()
    max_bad_row_fraction: float = MAX_BAD_ROWS
    objective: str = "causal-lm"


class Guess(NamedTuple):
    """A recipe, and what was guessed on the way."""

    title: str
    facts: dict[str, str]  # what is printed
    values: dict[str, Any]  # fields of the recipe
    comments: dict[str, str]
    use: str  # the command that uses the trained model
    constants: dict[str, Any] = {}


def recipe_name(data: Sequence[str], task: str) -> str:
    """Return a name for the run of data that the user typed: of the first path or, where that is a pattern or a name like train.csv, of
    its folder; with a number if there is such a run. Several texts in a folder elsewhere have the folder's name."""
    place = Path(os.path.abspath(data[0]))
    if task == "pretrain" and len(data) > 1 and place.parent != Path.cwd():
        place = place.parent
    stems = [
        plain_name(name) for name in (place.name.split(".")[0], *(p.name for p in place.parents))
    ]
    name = next((stem for stem in stems if stem and stem.lower() not in COMMON_STEMS), "mine")
    others = (f"{name}-{number}" for number in count(2))
    return next(free for free in chain([name], others) if not Path("runs", free).exists())


def recipe_file(name: str) -> str:
    """Return the file of a recipe; a module of this name that Python imports is not shadowed by it."""
    modules = {*sys.stdlib_module_names, *packages_distributions()}
    return f"{name}-recipe.py" if name in modules else f"{name}.py"


def plain_name(name: str) -> str:
    """Return a name without the signs of a pattern such as train-*."""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", name).strip("-._")


def rounded_up(number: float, multiple: int, most: int) -> int:
    return min(most, max(multiple, multiple * ceil(number / multiple)))


def vocabulary_size(characters: float) -> int:
    """Return a vocabulary whose tokens occur often enough to be learned: about one per 200 characters."""
    return min(32_768, max(512, 1 << max(0, round(log2(max(characters, 1) / 200)))))


def quoted_columns(row: R.RowSchema) -> str:
    return " and ".join(map(repr, row.text_columns))


def join_names(paths: Sequence[str]) -> str:
    """Join the first of many paths."""
    more = f" and {len(paths) - NAMED_PATHS:,} more" if len(paths) > NAMED_PATHS else ""
    return ", ".join(paths[:NAMED_PATHS]) + more


def open_data(
    files: Sequence[str], options: NewOptions, expected: R.RowSchema | None = None
) -> Table:
    """Inspect the user's files; `expected` is what a row is, where the task says it."""
    return open_table(
        files,
        options.columns,
        options.column_names,
        expected=expected,
        max_bad_rows=options.max_bad_row_fraction,
    )


def named_columns(table: Table, task: type[R.Task]) -> R.RowSchema:
    """Return the row schema of a task with the columns of a table."""
    assert table.examined
    try:
        return table.row_schema(task)
    except ValueError as error:
        raise ValueError(f"{table.path}: {error}") from None


def count_steps(epochs: float, samples: float, per_step: float, most: int) -> int:
    return int(min(most, max(50, ceil(epochs * samples / per_step))))


def split_source_at(source: R.Source, rows: int) -> tuple[R.Source, R.Source]:
    """Return the first nine tenths and the last tenth; of few rows more, so that some are left to validate on."""
    share = round(1 - max(0.1, min(0.5, 5 / max(rows, 1))), 2)
    return replace(source, fraction=(0.0, share)), replace(source, fraction=(share, 1.0))


def with_valid(
    table: Table,
    valid: Table | None,
    row: R.RowSchema,
    rows: int,
    last_of: str = "of the file; shuffle a sorted file first",
) -> tuple[R.Source, R.Source, str]:
    """Return what is trained on and what validates, and a line about the latter.

    Args:
        table: the data.
        valid: the validation data (default: the last rows).
        row: what both hold.
        rows: how many rows there are.
        last_of: which rows are the last.
    """
    if valid is None:
        train, valid_source = split_source_at(table.source, rows)
        return train, valid_source, f"the last {1 - train.fraction[1]:.0%} {last_of}"
    try:
        check_columns_exist(dict.fromkeys(valid.columns), row.columns)
    except ValueError as error:
        raise ValueError(f"--valid {valid.path}: {error}") from None
    return table.source, valid.source, join_names(valid.source.paths)


def warn_if_sorted(labels: Sequence[str]) -> str:
    """Return a warning where the label changes far less often along the rows than in random order: then the last rows are of few classes."""
    changes = sum(label != following for label, following in pairwise(labels))
    squares = sum((count / len(labels)) ** 2 for count in Counter(labels).values())
    if changes > 0.1 * len(labels) * (1 - squares):
        return ""
    return "the rows are sorted by label, and the last ones are no fair validation; shuffle the file, or give --valid"


def warnings_of(*texts: str) -> dict[str, str]:
    """Join the warnings that there are."""
    return {"warning": "; ".join(filter(None, texts))} if any(texts) else {}


def plan_fields(steps: int, lr: float) -> dict[str, Any]:
    """Return what every first recipe has: a short warm-up, precision by the machine, ten validations."""
    return {
        "steps": steps,
        "optimiser": R.AdamW(lr=lr),
        "schedule": R.CosineSchedule(warmup_steps=max(1, steps // 10), final_fraction=0.1),
        "precision": "auto",
        "eval_every": max(10, steps // 10),
        "checkpoints": R.Checkpoints(every_steps=max(10, steps // 10)),
    }


COMMENTS = {
    "task": "the objective; its fields are in weft.recipe",
    "data": "read once and prepared under prepared/; relative paths start where weft is called",
    "steps": "more steps for more data; weft show on this file prints their cost",
    "precision": "bf16 where the processor is fast at it, else fp32",
}
