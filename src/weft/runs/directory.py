"""The run directory: its paths, lock and contents."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .. import recipe as R
from ..interop.manifest import check_model_of_run, find_damage
from ..support.console import Report
from ..support.ranks import Ranks
from ..support.storage import seal_json, write_if_changed
from ..support.user_code import store_code
from ..support.values import to_plain
from ..training.checkpoints.checkpoint import (
    Checkpoint,
    all_checkpoints,
    latest_checkpoint,
    newest_facts,
)
from ..training.checkpoints.facts import CheckpointFacts
from .lock import RunLock
from .logs.log import check_log, is_finished

RUNS = "runs"  # default folder of runs


class RunDirectory:
    """The directory of a run: recipe.json, the user's code, lock, log.jsonl, checkpoints, and the
    model of a finished run.

    Args:
        path: path of the directory, which need not exist.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.is_locked = False
        self.is_training = False

    def __str__(self) -> str:
        return str(self.path)

    @property
    def log(self) -> Path:
        return self.path / "log.jsonl"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def model(self) -> Path:
        return self.path / "model"

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the lock of the run within the block; reentrant for this object."""
        if self.is_locked:
            yield
            return
        with RunLock(self.path):
            self.is_locked = True
            try:
                yield
            finally:
                self.is_locked = False

    @contextmanager
    def training(self) -> Iterator[None]:
        """Mark this object as the only training within the block."""
        if self.is_training:
            raise ValueError(
                f"{self} is already being trained; wait until it ends, or give another directory"
            )
        self.is_training = True
        try:
            yield
        finally:
            self.is_training = False

    def check_model(self) -> None:
        """Raise ValueError for a model that the run did not write."""
        check_model_of_run(self.model)

    def latest_checkpoint(self, report: Report, ranks: Ranks) -> Checkpoint | None:
        """Return the newest undamaged checkpoint; `ranks` divide the verification."""
        return latest_checkpoint(self.checkpoints, report, ranks)

    def all_checkpoints(self, report: Report, ranks: Ranks) -> list[Checkpoint]:
        """Return all undamaged checkpoints, the oldest first; `ranks` divide the verification."""
        return all_checkpoints(self.checkpoints, report, ranks)

    def newest_facts(self) -> CheckpointFacts | None:
        """Return the metadata of the newest checkpoint, without verifying its tensors."""
        return newest_facts(self.checkpoints)

    def store(self, recipe: R.Recipe, report: Report) -> None:
        """Write recipe.json with its own SHA-256, and the user's code; report a missing or damaged
        file.
        """
        path = self.path / "recipe.json"
        try:
            R.recipe_from_json(path)
        except (ValueError, OSError) as error:
            report(f"{error if path.exists() else f'{path} is missing'}; writing it again")
        content = to_plain(recipe)
        store_code(self.path)
        write_if_changed(path, seal_json(content))

    def is_finished(self) -> bool:
        return is_finished(self.path)

    def damage(self) -> str | None:
        """Describe the damage of the model; None if it is intact."""
        return find_damage(self.model)

    def check_log(self, report: Report) -> None:
        """Report damaged lines, and whether a finished run's log was changed."""
        check_log(self.path, report)


def run_directory(directory: str | Path | RunDirectory | None, name: str) -> RunDirectory:
    """Return a run directory (default: runs/<recipe name>)."""
    if isinstance(directory, RunDirectory):
        return directory
    return RunDirectory(directory if directory is not None else Path(RUNS) / name)
