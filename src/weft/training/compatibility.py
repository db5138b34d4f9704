"""Whether a recipe matches the run in a folder: what may differ, what may not, and how far a run can be extended."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .. import recipe as R
from ..data.files import MissingFile, find
from ..storage import seal_json, write_if_changed
from ..values import flatten_plain, from_json, to_plain
from .checkpoint_facts import CheckpointFacts

FILE = "recipe.json"

# What may change between two starts
CHANGEABLE_FIELDS = {
    "data.max_bad_row_fraction",
    "micro_batch_size",
    "workers",
    "activation_checkpointing",
    "compile",
    "device",
    "eval_every",
    "checkpoints.every_steps",
    "checkpoints.keep",
    "checkpoints.copy_to",
    "guard.max_skipped_steps",
    "paper",
    "timeouts.collective",
    "timeouts.heartbeat",
    "threads",
}
CHANGEABLE_VALUES = ("activation_checkpointing.", "parallel.", "loggers.")
PATH_FIELDS = re.compile(
    r"data\.(train|valid)(\.sources\.\d+\.source)?\.paths\.\d+|data\.tokenizer\.path|data\.prepared_folder|init_from|task\.(teacher|reference)"
)


def refuse_other(checkpoint: CheckpointFacts, recipe: R.Recipe) -> None:
    """Raise ValueError for a recipe that differs from that of a checkpoint."""
    before = saved_recipe(checkpoint)
    for name, was in recipe_differences(before, recipe):
        reason = "" if name != "steps" else cannot_extend(before, recipe, checkpoint.step)
        if reason is not None:
            raise ValueError(
                f"{checkpoint.path} was saved with another recipe: {name} was {was!r}; {reason}"
                "undo the change, or start another run with weft train --output FOLDER"
            )


def saved_recipe(checkpoint: CheckpointFacts) -> R.Recipe:
    try:
        saved = from_json(checkpoint.state["recipe"])
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{checkpoint.path}/state.json holds no recipe that can be read: {error}"
        ) from None
    if not isinstance(saved, R.Recipe):
        raise ValueError(
            f"{checkpoint.path}/state.json holds a {type(saved).__name__}, not a Recipe"
        )
    return saved


def recipe_of(folder: Path, report: Callable[[str], None]) -> R.Recipe:
    """Return the recipe of a run. If its file is missing or damaged, that of the newest checkpoint; if it was edited, raise
    ValueError."""
    try:
        return R.recipe_of_run(folder)
    except ValueError as error:
        if not (folder / "checkpoints").is_dir():
            raise
        from .checkpoint import latest_checkpoint  # torch, which is needed here alone

        checkpoint = latest_checkpoint(folder / "checkpoints", report)
        if checkpoint is None:
            raise
        saved = saved_recipe(checkpoint)
        refuse_edited(folder / FILE, saved, checkpoint.path.name)
        report(f"{error}; the recipe of {checkpoint.path.name} is used")
        return saved


def refuse_edited(path: Path, saved: R.Recipe, step: str) -> None:
    """Raise ValueError if the file holds a recipe that differs from the saved one."""
    try:
        edited = R.recipe_from_json(path, sealed=False)
    except (ValueError, OSError):
        return  # no recipe: it can be restored
    for name, was in recipe_differences(saved, edited)[:1]:
        raise ValueError(
            f"{path} was changed after it was written: {name} was {was!r} in {step}; undo the change, or delete the file "
            "to restore it"
        )


def store_recipe(folder: Path, recipe: R.Recipe, report: Callable[[str], None]) -> None:
    """Write the recipe beside the run, with its own SHA-256; call `report` if it was missing or damaged."""
    path = folder / FILE
    try:
        R.recipe_from_json(path)
    except (ValueError, OSError) as error:
        report(f"{error if path.exists() else f'{path} is missing'}; it is written again")
    write_if_changed(path, seal_json(to_plain(recipe)))


def recipe_differences(before: R.Recipe, now: R.Recipe) -> list[tuple[str, Any]]:
    """Return (path, old value) of every difference that a run does not allow."""
    old, new = (flatten_plain(json.loads(recipe.to_json())) for recipe in (before, now))
    free = CHANGEABLE_FIELDS - {
        "checkpoints.every_steps"
        if isinstance(now.average, R.AverageLast)
        else "eval_every"
        if isinstance(now.average, R.BestCheckpoint)
        else ""
    }
    return [
        (name, old.get(name))
        for name in new | old
        if name not in free
        and not name.startswith(CHANGEABLE_VALUES)
        and not is_same_value(name, old.get(name), new.get(name))
    ]


def is_same_value(name: str, before: Any, now: Any) -> bool:
    """Return whether two values are equal for a run: two paths of one file are, and the precision auto equals any."""
    if name == "precision" and now == "auto":
        return True
    if before == now or not (
        PATH_FIELDS.fullmatch(name) and isinstance(before, str) and isinstance(now, str)
    ):
        return bool(before == now)
    return resolved_paths(before) == resolved_paths(now)


def resolved_paths(path: str) -> list[str]:
    try:
        return [path if "://" in path else os.path.realpath(path) for path in find(path)]
    except (MissingFile, OSError):
        return [os.path.realpath(os.path.expanduser(path))]


def cannot_extend(before: R.Recipe, now: R.Recipe, done: int) -> str | None:
    """Return why a run cannot have this many steps in total, since its past steps would have been different; None if it can."""
    if now.steps < done:
        return f"{done:,} steps are done already; "
    for step in range(done):
        old, new = (recipe.schedule.scale(step, recipe.steps) for recipe in (before, now))
        if old != new:
            peak = now.optimiser.lr
            return (
                f"with steps={now.steps} the {type(now.schedule).__name__} schedule would have had a learning rate of {peak * new:.3g} "
                f"at step {step + 1:,}, not {peak * old:.3g}, and a run is extended only if all its past steps stay as they were "
                "(ConstantSchedule and InverseSqrt always, WarmupStableDecay before its decay); "
            )
        if before.row_length(step) != now.row_length(step):
            return (
                f"with steps={now.steps} step {step + 1:,} would have had rows of {now.row_length(step)} tokens, "
                f"not {before.row_length(step)}, because `length_schedule` is in fractions of the steps; "
            )
    return None
