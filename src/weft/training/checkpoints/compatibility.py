"""Comparison of a recipe with an existing run: fields that may differ, fields that may not, and
extension of runs.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ... import recipe as R
from ...data.reading.files import PATHS_OF_DATA, same_files
from ...support.values import flatten_plain, from_json
from .facts import CheckpointFacts

FILE = "recipe.json"

# Fields that may change between two starts
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
PATH_FIELDS = re.compile(rf"data\.({PATHS_OF_DATA.pattern})|init_from|task\.(teacher|reference)")


def refuse_other(checkpoint: CheckpointFacts, recipe: R.Recipe) -> None:
    """Raise ValueError for a recipe that differs from that of a checkpoint."""
    before = saved_recipe(checkpoint)
    for name, was in recipe_differences(before, recipe):
        reason: str | None = ""
        if name == "steps":
            peak = recipe.optimiser.lr
            schedules = before.training_schedule, recipe.training_schedule
            reason = cannot_extend(*schedules, checkpoint.step, peak)
        if reason is not None:
            raise ValueError(
                f"{checkpoint.path} was saved with a different recipe: {name} was {was!r}; {reason}"
                "undo the change, or start a new run with weft train --output FOLDER"
            )


def saved_recipe(checkpoint: CheckpointFacts) -> R.Recipe:
    try:
        saved = from_json(checkpoint.state["recipe"])
        if not isinstance(saved, R.Recipe):
            raise TypeError(f"it is a {type(saved).__name__}")
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{checkpoint.path}/state.json has no readable recipe: {error}; delete "
            f"{checkpoint.path} to resume from an older checkpoint, or start a new run with "
            "weft train --output FOLDER"
        ) from None
    return saved


def recipe_of(folder: Path, report: Callable[[str], None]) -> R.Recipe:
    """Return the recipe of a run. If its file is missing or damaged, return that of the newest
    checkpoint; if it was edited, raise ValueError.
    """
    try:
        return R.recipe_of_run(folder)
    except ValueError as error:
        if not (folder / "checkpoints").is_dir():
            raise
        from .checkpoint import latest_checkpoint  # imports torch, which is needed only here

        checkpoint = latest_checkpoint(folder / "checkpoints", report)
        if checkpoint is None:
            raise
        saved = saved_recipe(checkpoint)
        for name, was in edits(folder / FILE, checkpoint):
            raise ValueError(
                f"{folder / FILE} was changed after it was written: {name} was {was!r} in "
                f"{checkpoint.path.name}; "
                "undo the change, or delete the file to restore it"
            ) from None
        report(f"{error}; using the recipe of {checkpoint.path.name}")
        return saved


def edits(path: Path, checkpoint: CheckpointFacts) -> list[tuple[str, Any]]:
    """Return (path, old value) of every field in which a file differs from a checkpoint's recipe;
    empty if the file has no recipe.
    """
    try:
        edited = R.recipe_from_json(path, sealed=False)
    except (ValueError, OSError):
        return []
    return recipe_differences(saved_recipe(checkpoint), edited)


def recipe_differences(before: R.Recipe, now: R.Recipe) -> list[tuple[str, Any]]:
    """Return (path, old value) of every difference that a run does not allow."""
    old, new = (flatten_plain(json.loads(recipe.to_json())) for recipe in (before, now))
    free = CHANGEABLE_FIELDS
    if isinstance(now.average, R.AverageLast):
        free = free - {"checkpoints.every_steps"}
    if isinstance(now.average, R.BestCheckpoint):
        free = free - {"eval_every"}
    return [
        (name, old.get(name))
        for name in new | old
        if name not in free
        and not name.startswith(CHANGEABLE_VALUES)
        and not is_same_value(name, old.get(name), new.get(name))
    ]


def is_same_value(name: str, before: Any, now: Any) -> bool:
    """Return whether two values are equal for a run: paths of the same file are equal, and
    precision "auto" equals any.
    """
    if name == "precision" and now == "auto":
        return True
    return bool(before == now) or (
        PATH_FIELDS.fullmatch(name) is not None and same_files(before, now)
    )


def cannot_extend(
    before: R.TrainingSchedule, now: R.TrainingSchedule, done: int, peak: float
) -> str | None:
    """Return why a run cannot have this many steps in total, since its past steps would have been
    different; None if it can.

    Args:
        before: the schedule that the run began with.
        now: that of this many steps.
        done: number of completed steps.
        peak: learning rate.
    """
    if now.steps < done:
        return f"{done:,} steps are already done; "
    for step in range(done):
        old = before.lr_scale(step)
        new = now.lr_scale(step)
        if old != new:
            return (
                f"with steps={now.steps} the {type(now.learning_rate).__name__} schedule would "
                f"have had a learning rate of {peak * new:.3g} "
                f"at step {step + 1:,}, not {peak * old:.3g}, but a run can be extended only if "
                f"its past steps stay the same (ConstantSchedule and InverseSqrt always, "
                f"WarmupStableDecay before its decay); "
            )
        if before.row_length(step) != now.row_length(step):
            return (
                f"with steps={now.steps} step {step + 1:,} would have had rows of "
                f"{now.row_length(step)} tokens, "
                f"not {before.row_length(step)}, because `length_schedule` is in fractions of the "
                "steps; "
            )
    return None
