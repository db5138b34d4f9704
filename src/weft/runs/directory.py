"""The directory of a run as one object: its paths, its lock, and what is in it."""

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

RUNS = "runs"  # the folder that runs are written to by default


class RunDirectory:
    """The directory of a run: recipe.json, the user's code, lock, log.jsonl, checkpoints, and the
    model of a finished run.

    Args:
        path: of the directory, which need not exist.
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
        """Hold the lock of the run within the block, also where a caller of this object holds it
        already.
        """
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
        """Be the only training of this object within the block."""
        if self.is_training:
            raise ValueError(
                f"{self} is being trained already; wait for it, or give another folder"
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
        """Return the newest undamaged checkpoint; `ranks` share the reading."""
        return latest_checkpoint(self.checkpoints, report, ranks)

    def all_checkpoints(self, report: Report, ranks: Ranks) -> list[Checkpoint]:
        """Return all undamaged checkpoints, the oldest first; `ranks` share the reading."""
        return all_checkpoints(self.checkpoints, report, ranks)

    def newest_facts(self) -> CheckpointFacts | None:
        """Return the facts of the newest checkpoint, without comparing its tensors."""
        return newest_facts(self.checkpoints)

    def store(self, recipe: R.Recipe, report: Report) -> None:
        """Write recipe.json with its own SHA-256, and the code of the user's own parts; report a
        file that was missing or damaged.
        """
        path = self.path / "recipe.json"
        try:
            R.recipe_from_json(path)
        except (ValueError, OSError) as error:
            report(f"{error if path.exists() else f'{path} is missing'}; it is written again")
        content = to_plain(recipe)
        store_code(self.path)
        write_if_changed(path, seal_json(content))

    def is_finished(self) -> bool:
        return is_finished(self.path)

    def damage(self) -> str | None:
        """Describe what is damaged in the model; None if nothing is."""
        return find_damage(self.model)

    def check_log(self, report: Report) -> None:
        """Report damaged lines, and whether the log of a finished run is as the run wrote it."""
        check_log(self.path, report)


def run_directory(directory: str | Path | RunDirectory | None, name: str) -> RunDirectory:
    """Return a run directory (default: that of a recipe's name)."""
    if isinstance(directory, RunDirectory):
        return directory
    return RunDirectory(directory if directory is not None else Path(RUNS) / name)
