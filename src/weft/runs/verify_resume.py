"""Verification of exact resume: train the last interval of a run again and compare."""

import time
from pathlib import Path
from typing import NamedTuple

from .. import recipe as R
from ..data.preparing.prepared import PreparedData
from ..nn.kernels.devices import resolve_device
from ..support.ranks import Ranks
from ..training.checkpoints.checkpoint import Checkpoint
from ..training.checkpoints.compatibility import recipe_of, refuse_other, saved_recipe
from ..training.environment import configured_environment, restored_random_state
from ..training.parallel.ranks import DistributedRanks
from ..training.validation import Progress, ignore_progress
from .checkpoints import check_fingerprints, restore_state, validated_step
from .directory import RunDirectory
from .run import Run
from .validation import validate_run, validation_pending


class ResumeCheck(NamedTuple):
    first_step: int
    last_step: int
    saved_digest: str
    repeated_digest: str
    seconds: float


def reproducible_checkpoints(directory: RunDirectory) -> list[Checkpoint]:
    """Return the checkpoints of a run; raise ValueError if one process cannot reproduce them."""
    checkpoints = directory.all_checkpoints(lambda line: None, Ranks())
    if not checkpoints:
        raise ValueError(f"{directory} has no undamaged checkpoint; train it with weft train")
    if checkpoints[-1].state["world"] > 1:
        raise ValueError(
            f"{directory} was trained by {checkpoints[-1].state['world']} ranks, and one process "
            "cannot reproduce their sums bit for bit; verify a run of one process"
        )
    return checkpoints


def validate_as_then(run: Run, validated: int) -> None:
    """Validate at the same steps as the run, up to step `validated`, if validation selects
    weights; otherwise do nothing.
    """
    chooses = isinstance(run.recipe.average, R.BestCheckpoint)
    if chooses and validation_pending(run) and run.trainer.step <= validated:
        validate_run(run)


def restored(run: Run, checkpoint: Checkpoint | None, directory: RunDirectory) -> Run:
    """Restore a run from a checkpoint; None is the start of the run."""
    if checkpoint is not None:
        check_fingerprints(run, checkpoint, directory)
        restore_state(run, checkpoint)
    return run


def verify_resume(
    directory: str | Path,
    prepared: PreparedData,
    device: str | None = None,
    progress: Progress = ignore_progress,
) -> ResumeCheck:
    """Train the last interval again, from the checkpoint before it, and compare every bit with the
    newest checkpoint.

    Args:
        directory: the run directory.
        prepared: the prepared data of its recipe.
        device: the device to train on (default: that of the recipe).
        progress: called after each step with the number of steps done and the total.
    """
    started = time.perf_counter()
    place = RunDirectory(directory)
    *_, last = checkpoints = reproducible_checkpoints(place)
    refuse_other(last, recipe_of(place.path, lambda line: None))
    recipe = saved_recipe(last)
    ranks = DistributedRanks(device=resolve_device(device or recipe.device))
    environment = configured_environment(recipe.threads, recipe.deterministic)
    with place.lock(), environment, restored_random_state(ranks.device):
        prepared.check()
        saved_digest = restored(
            Run(recipe, prepared, ranks, is_new=False), last, place
        ).trainer.digest()
        # As at the start of another process
        before = checkpoints[-2] if len(checkpoints) > 1 else None
        run = Run(recipe, prepared, ranks, is_new=before is None)
        restored(run, before, place)
        begin = run.trainer.step
        validated = validated_step(last)
        validate_as_then(run, validated)
        for event in run.trainer:
            validate_as_then(run, validated)
            progress(event.step - begin, last.step - begin)
            if event.step == last.step:
                break
        digest = run.trainer.digest()
    return ResumeCheck(begin, last.step, saved_digest, digest, time.perf_counter() - started)
