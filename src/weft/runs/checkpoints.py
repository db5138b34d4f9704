"""Checkpoints of a run: saving, copying and restoring its state."""

import time
from functools import partial
from pathlib import Path
from typing import Any, Self

import torch

from ..support import storage
from ..support.console import Report
from ..support.ranks import Ranks
from ..support.user_code import LOADED
from ..training.checkpoints.checkpoint import (
    Checkpoint,
    CheckpointWriter,
    Writers,
    check_free_space,
)
from ..training.checkpoints.compatibility import refuse_other
from ..training.checkpoints.copies import CheckpointCopies
from ..training.checkpoints.parts import SavedGroups
from ..training.checkpoints.sharded_writer import ShardedCheckpointWriter
from ..training.environment import describe_environment, environment_changes
from ..training.parallel.ranks import DistributedRanks
from .directory import RunDirectory
from .logs.log import lines_until, restore_log
from .run import Run

# Restoring


def find_checkpoint(
    directory: RunDirectory,
    copies: CheckpointCopies | None,
    ranks: DistributedRanks,
    report: Report,
) -> Checkpoint | None:
    """Return the newest undamaged checkpoint, the same on all ranks; None if neither the directory
    nor the copies have one.
    """
    if copies is not None:
        fetch_checkpoint(directory, copies, ranks, report)
    checkpoint = directory.latest_checkpoint(report, ranks if ranks.splits_weights else Ranks())
    check_same_step(checkpoint, directory, ranks)
    return checkpoint


def check_same_step(
    checkpoint: Checkpoint | None, directory: RunDirectory, ranks: DistributedRanks
) -> None:
    """Raise ValueError on all ranks if they would resume after different steps."""
    step = 0 if checkpoint is None else checkpoint.step
    mean = ranks.sum([float(step)])[0] / ranks.size
    if ranks.sum([abs(step - mean)])[0]:
        raise ValueError(
            f"{directory}: rank {ranks.world_rank} would resume after step {step:,}, but not all "
            "others; put run directories on shared storage, "
            "or remove checkpoints that only some machines have"
        )


def restore_run(run: Run, checkpoint: Checkpoint, directory: RunDirectory, report: Report) -> None:
    """Resume from a checkpoint and report changes since it was saved."""
    check_fingerprints(run, checkpoint, directory)
    restore_state(run, checkpoint)
    trainer = run.trainer
    before = checkpoint.state["world"]
    now = trainer.ranks.world
    if before != now:
        dropout = "different attention dropout and " if trainer.fused_dropout else ""
        report(
            f"ranks changed from {before} to {now}: same samples, but {dropout}different rounding"
        )
    saved_environment = checkpoint.state.get("environment", {})
    environment = describe_environment(trainer.ranks.device)
    if changed := environment_changes(saved_environment, environment):
        report(changed)
    report(f"resuming after step {trainer.step:,} of {run.recipe.steps:,} ({checkpoint.path.name})")


def restore_state(run: Run, checkpoint: Checkpoint) -> None:
    in_parts = run.trainer.ranks.splits_weights
    groups: SavedGroups = checkpoint.saved() if in_parts else checkpoint.all_tensors()
    run.trainer.restore(groups, checkpoint.state)
    run.trainer.last_validated_step = validated_step(checkpoint)


def validated_step(checkpoint: Checkpoint) -> int:
    """Return the last step whose validation the checkpoint contains; a signal can interrupt the
    validation of the checkpoint's own step.
    """
    step: int = checkpoint.state.get("validated", checkpoint.step)
    return step


def check_fingerprints(run: Run, checkpoint: Checkpoint, directory: RunDirectory) -> None:
    """Raise ValueError for a checkpoint with another recipe, other data or another teacher."""
    refuse_other(checkpoint, run.recipe)
    for name, now in run.fingerprints.items():
        if (before := checkpoint.state[name]) != now:
            raise ValueError(
                f"{directory}: the {name} changed since this run began (fingerprint {before[:12]}, "
                f"now {now[:12]}); "
                f"restore the old {name}, or start another run with --output"
            )


# Saving


def checkpoint_state(run: Run) -> tuple[dict[str, dict[str, torch.Tensor]], dict[str, Any]]:
    """Return the contents of a checkpoint at this step: groups of tensors, and metadata."""
    trainer = run.trainer
    groups, facts = trainer.state()
    environment = describe_environment(trainer.ranks.device) | {"precision": run.recipe.precision}
    facts |= run.fingerprints
    facts |= {
        "recipe": run.recipe.to_json(),
        "world": trainer.ranks.world,
        "validated": trainer.last_validated_step,
        "environment": environment,
        "code": {name: code.sha256 for name, code in LOADED.items()},
    }
    return groups, facts


def open_writer(
    directory: RunDirectory,
    run: Run,
    copies: CheckpointCopies | None,
    checkpoint: Checkpoint | None,
) -> CheckpointWriter | None:
    """Return the checkpoint writer: on every rank if the weights are sharded, else on the first
    rank.

    Args:
        directory: the run directory; its disk needs space for one checkpoint more than are kept.
        run: the run to save.
        copies: object storage that also receives the checkpoints, or None.
        checkpoint: the checkpoint that the run resumes from, which counts as undamaged, or None.
    """
    ranks = run.trainer.ranks
    root = directory.checkpoints
    size = run.checkpoint_bytes()
    check_free_space(root, size * (run.recipe.checkpoints_kept() + 1))
    keep = run.recipe.checkpoints.keep
    pinned = run.recipe.averaged_steps()
    on_saved = None if copies is None else copies.submit
    if not ranks.splits_weights:
        if not ranks.is_first:
            return None
        writer = CheckpointWriter(root, keep, pinned, on_saved)
    else:
        if ranks.is_first:
            storage.make_folder(root)
        writers = Writers(ranks.world_rank, ranks.world, ranks.common_token())
        if copies is not None:
            copies.writers = writers
        timeout = run.recipe.timeouts.collective
        writer = ShardedCheckpointWriter(
            root, keep, pinned, on_saved, writers=writers, timeout=timeout
        )
    writer.whole |= {checkpoint.path} if checkpoint is not None else set()
    return writer


class RunSaver:
    """Saves the checkpoints of a run.

    Args:
        run: the run to save.
        writer: the checkpoint writer; None on a rank that writes none.
    """

    def __init__(self, run: Run, writer: CheckpointWriter | None) -> None:
        self.run = run
        self.writer = writer
        self.saved = run.trainer.step

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.writer is not None:
            self.writer.close()

    @property
    def writes(self) -> bool:
        return self.writer is not None

    def save(self) -> float:
        """Save the current step in the background; return the seconds that training waits."""
        assert self.writer is not None
        begin = time.perf_counter()
        self.saved = self.run.trainer.step
        self.writer.submit(self.saved, *checkpoint_state(self.run))
        return time.perf_counter() - begin

    def save_latest(self) -> None:
        """Save the current step unless it is saved, and wait until it is on disk."""
        if self.writer is None:
            return
        if self.run.trainer.step > self.saved:
            self.save()
        self.writer.wait()

    def save_on_all_ranks(self) -> None:
        """Save the last step; all ranks wait until the first one has written it, which may
        take longer than the timeout of a collective operation.
        """
        ranks = self.run.trainer.ranks
        token = ranks.common_token()
        self.save_latest()
        ranks.wait_for_all(f"last-save/{token}")


# Copies in object storage


def open_copies(
    address: str | None, keep: int, pinned: list[int], directory: RunDirectory, report: Report
) -> CheckpointCopies | None:
    """Return the copier of checkpoints to object storage; None without an address."""
    if address is None:
        return None
    return CheckpointCopies(address, keep, pinned, report, partial(lines_until, directory.log))


def fetch_checkpoint(
    directory: RunDirectory, copies: CheckpointCopies, ranks: DistributedRanks, report: Report
) -> None:
    """Download the newest copy of the run's checkpoints if it is newer than this directory.

    Per disk one rank downloads: the rank that creates a claim file there first.
    """
    root = directory.checkpoints
    storage.make_folder(root)
    token = ranks.common_token()
    claim = root / f".new-fetch-{token}"
    if not ranks.is_first:
        ranks.barrier()
    downloads = claims(claim)
    if ranks.is_first:
        ranks.barrier()
    try:
        if downloads and (step := copies.fetch_newest(root)) is not None:
            report(f"resuming from the copy of step {step:,} in {copies.root}")
            if ranks.is_first:
                restore_log(directory.log, step, copies.fetch_log(step))
    finally:
        ranks.wait_for_all(f"checkpoint-fetched/{token}")
        if downloads:
            claim.unlink(missing_ok=True)


def claims(path: Path) -> bool:
    """Return whether this process is the first to create a file."""
    try:
        path.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True
