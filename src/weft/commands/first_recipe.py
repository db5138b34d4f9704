"""`weft new`: what every first recipe has, whatever its data are. Every reader and every rule is that of `data` and `tuning`."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, count, pairwise
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

from .. import recipe as R
from ..data.quarantine import MAX_BAD_ROWS

SAMPLE_ROWS = 2000
COMMON_STEMS = {"train", "training", "data", "dataset", "all", "input", "corpus", "annotations"}


class TableOptions(NamedTuple):
    """How the user says that a table is read."""

    columns: Sequence[str] = ()
    column_names: Sequence[str] = ()
    max_bad_row_fraction: float = MAX_BAD_ROWS


class Guess(NamedTuple):
    """A recipe, and what was guessed on the way."""

    title: str
    facts: dict[str, str]  # what is printed
    values: dict[str, Any]  # fields of the recipe
    comments: dict[str, str]
    use: str  # the command that uses the trained model
    constants: dict[str, Any] = {}


def recipe_name(path: str) -> str:
    """Return the name of the file or, where many files are called so, of its folder; with a number if there is such a run."""
    place = Path(path).resolve()
    stem = plain_name(place.name.split(".")[0])
    if stem.lower() in COMMON_STEMS:
        stem = plain_name(place.parent.name) or stem
    name = stem or "mine"
    others = (f"{name}-{number}" for number in count(2))
    return next(free for free in chain([name], others) if not Path("runs", free).exists())


def plain_name(name: str) -> str:
    """Return a name without the signs of a pattern such as train-*."""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", name).strip("-._")


def rounded_up(number: float, multiple: int, most: int) -> int:
    return min(most, max(multiple, multiple * ceil(number / multiple)))


def count_steps(epochs: float, samples: float, per_step: float, most: int) -> int:
    return int(min(most, max(50, ceil(epochs * samples / per_step))))


def split_source_at(source: R.Source, rows: int) -> tuple[R.Source, R.Source]:
    """Return the first nine tenths and the last tenth; of few rows more, so that some are left to validate on."""
    share = round(1 - max(0.1, min(0.5, 5 / max(rows, 1))), 2)
    return replace(source, fraction=(0.0, share)), replace(source, fraction=(share, 1.0))


def with_valid(
    source: R.Source,
    valid: Sequence[str],
    rows: int,
    last_of: str = "of the file; shuffle a sorted file first",
) -> tuple[R.Source, R.Source, str]:
    if valid:
        return source, replace(source, paths=tuple(valid)), ", ".join(valid)
    train, valid_source = split_source_at(source, rows)
    return train, valid_source, f"the last {1 - train.fraction[1]:.0%} {last_of}"


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
