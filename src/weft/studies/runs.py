"""One run of a study, and its state as any process reads it from the run's directory."""

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
    """A run of a study: an ordinary run, which `weft train DIRECTORY` would continue.

    Attributes:
        directory: of the run.
        recipe: what is trained.
        prepared: the data of the recipe, which runs may share.
    """

    directory: Path
    recipe: R.Recipe
    prepared: PreparedData


class RunState(NamedTuple):
    """The state of a run: waiting for its start or for its next one, running, done, or failed with
    its last line.
    """

    name: str
    state: State
    line: str = ""


def study_states(study: Path) -> list[RunState]:
    """Return the states of all runs of a study by name. The directories of the runs are the only
    record, and a killed run holds its lock no longer.
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
    """Return whether a run is finished with its recipe and its model is undamaged."""
    if not has_model(run.directory):
        return False
    return not recipe_differences(R.recipe_of_run(run.directory), run.recipe)


def has_model(directory: Path) -> bool:
    """Return whether a run is finished and its model is undamaged."""
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
    """Raise ValueError if a run was begun with a recipe that another one cannot continue.

    Args:
        directory: of the run.
        differences: between the two, as `recipe_differences` returns them.
        options: what the user sets a field of the recipe with, by the field.
    """
    for name, before in differences:
        option = (options or {}).get(name)
        change = f"the change of {option}" if option else "the change"
        raise ValueError(
            f"{directory} was begun with another recipe: {name} was {before!r}; "
            f"undo {change}, or give another --output"
        )


def check_begun(run: StudyRun) -> None:
    """Raise ValueError if the directory holds a run of another recipe."""
    if has_begun(run.directory):
        begun = recipe_of(run.directory, lambda line: None)
        refuse_differences(run.directory, recipe_differences(begun, run.recipe))


# Failures


def record_failure(directory: Path, line: str) -> None:
    """Record the last line of a run that failed, until it starts again."""
    write_atomically(directory / FAILURE_FILE, f"{line}\n".encode())


def forget_failure(directory: Path) -> None:
    (directory / FAILURE_FILE).unlink(missing_ok=True)


def last_line(path: Path) -> str:
    """Return the last line of a text file that is not empty; "" without one."""
    if not path.is_file():
        return ""
    lines = path.read_text("utf-8", errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
