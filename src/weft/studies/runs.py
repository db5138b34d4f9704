"""One run of a study, and its state as read from the run directory."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, NamedTuple

from .. import recipe as R
from ..data.preparing.prepared import PreparedData
from ..interop.manifest import MANIFEST_FILE, find_damage
from ..runs.lock import is_locked
from ..runs.logs.log import is_finished
from ..support.storage import write_atomically
from ..training.checkpoints.compatibility import recipe_differences, recipe_of

FAILURE_FILE = "failure.txt"
State = Literal["waiting", "running", "done", "failed"]


class StudyRun(NamedTuple):
    """A run of a study: an ordinary run, which `weft train DIRECTORY` resumes.

    Attributes:
        directory: the run directory.
        recipe: the recipe to train.
        prepared: the prepared data of the recipe, which runs may share.
    """

    directory: Path
    recipe: R.Recipe
    prepared: PreparedData


class RunState(NamedTuple):
    """The state of a run: waiting (not started, or stopped), running, done, or failed with its last
    line of output.
    """

    name: str
    state: State
    line: str = ""


def study_states(study: Path) -> list[RunState]:
    """Return the states of all runs of a study by name, from the run directories and their locks.
    A killed run no longer holds its lock.
    """
    return [run_state(path.parent) for path in sorted(study.glob("*/recipe.json"))]


def run_state(directory: Path) -> RunState:
    """Return the state of a run."""
    if is_locked(directory):
        return RunState(directory.name, "running")
    if is_finished(directory):
        return RunState(directory.name, "done")
    line = last_line(directory / FAILURE_FILE)
    return RunState(directory.name, "failed" if line else "waiting", line)


def is_done(run: StudyRun) -> bool:
    """Return whether a run is finished with its recipe and has an undamaged model."""
    if not has_model(run.directory):
        return False
    return not recipe_differences(R.recipe_of_run(run.directory), run.recipe)


def has_model(directory: Path) -> bool:
    """Return whether a run is finished and has an undamaged model."""
    model = directory / "model"
    if not is_finished(directory) or not model.is_dir():
        return False
    return not (model / MANIFEST_FILE).exists() or find_damage(model) is None


def has_begun(directory: Path) -> bool:
    """Return whether a run has steps that another recipe must not continue."""
    return is_finished(directory) or any((directory / "checkpoints").glob("step-*"))


def refuse_differences(
    directory: Path,
    differences: Iterable[tuple[str, Any]],
    options: dict[str, str] | None = None,
) -> None:
    """Raise ValueError if a run was started with an incompatible recipe.

    Args:
        directory: the run directory.
        differences: the differences of the recipes, from `recipe_differences`.
        options: the option that sets a recipe field, by field.
    """
    for name, before in differences:
        option = (options or {}).get(name)
        change = f"the change of {option}" if option else "the change"
        raise ValueError(
            f"{directory} was started with another recipe: {name} was {before!r}; "
            f"undo {change}, or give another --output"
        )


def check_begun(run: StudyRun) -> None:
    """Raise ValueError if the directory holds a run of another recipe."""
    if has_begun(run.directory):
        begun = recipe_of(run.directory, lambda line: None)
        refuse_differences(run.directory, recipe_differences(begun, run.recipe))


# Failures


def record_failure(directory: Path, line: str) -> None:
    """Record the last line of output of a failed run, until it starts again."""
    write_atomically(directory / FAILURE_FILE, f"{line}\n".encode())


def forget_failure(directory: Path) -> None:
    (directory / FAILURE_FILE).unlink(missing_ok=True)


def last_line(path: Path) -> str:
    """Return the last non-empty line of a text file, or ""."""
    if not path.is_file():
        return ""
    lines = path.read_text("utf-8", errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
