"""Proof of exact resume: train the last interval of a run again and compare."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from .. import recipe as R
from ..kernels.devices import resolve_device
from ..training.checkpoint import Checkpoint, all_checkpoints
from ..training.compatibility import recipe_of
from ..training.environment import configured_environment, restored_random_state
from .lock import RunLock
from .run import (
    RunState,
    build_run,
    check_fingerprints,
    ignore_message,
    restore_state,
    validate_run,
    validated_step,
    validation_pending,
)


class ResumeCheck(NamedTuple):
    first_step: int
    last_step: int
    saved_digest: str
    repeated_digest: str
    seconds: float


def reproducible_checkpoints(folder: Path) -> list[Checkpoint]:
    """Return the checkpoints of a run; ValueError if one process cannot reproduce them."""
    checkpoints = all_checkpoints(folder / "checkpoints")
    if not checkpoints:
        raise ValueError(f"{folder} has no good checkpoint yet; train it first")
    if checkpoints[-1].state["world"] > 1:
        raise ValueError(
            f"{folder} was trained by {checkpoints[-1].state['world']} ranks; one process cannot reproduce their sums bit for bit"
        )
    return checkpoints


def validate_as_then(run: RunState, validated: int) -> None:
    """Validate where the run did, up to the step `validated`, if that chooses weights; else it changes nothing."""
    chooses = isinstance(run.recipe.average, R.BestCheckpoint)
    if chooses and validation_pending(run) and run.trainer.step <= validated:
        validate_run(run)


def verify_resume(
    out: str | Path,
    device: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> ResumeCheck:
    """Train the last interval again, from the checkpoint before it, and compare every bit with the newest.

    Args:
        out: folder of the run.
        device: what `resolve_device` takes (default: the recipe's).
        progress: takes the steps done and the steps in all, after each step.
    """
    folder, started = Path(out), time.perf_counter()
    recipe = recipe_of(folder, ignore_message)
    recipe = replace(recipe, device=device or recipe.device)
    checkpoints = reproducible_checkpoints(folder)
    device_in_use = resolve_device(recipe.device)
    with RunLock(folder), configured_environment(recipe), restored_random_state(device_in_use):
        run = build_run(recipe, is_new=False)
        for one in checkpoints[-2:]:
            check_fingerprints(run, one, folder)
        restore_state(run, checkpoints[-1])
        saved_digest = run.trainer.digest()
        run = build_run(recipe, is_new=len(checkpoints) == 1)  # as another process would begin
        if len(checkpoints) > 1:
            restore_state(run, checkpoints[-2])
        begin, validated = run.trainer.step, validated_step(checkpoints[-1])
        validate_as_then(run, validated)
        for event in run.trainer:
            validate_as_then(run, validated)
            if progress is not None:
                progress(event.step - begin, checkpoints[-1].step - begin)
            if event.step == checkpoints[-1].step:
                break
        return ResumeCheck(
            begin,
            checkpoints[-1].step,
            saved_digest,
            run.trainer.digest(),
            time.perf_counter() - started,
        )
