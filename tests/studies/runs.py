"""Studies of small runs: a class of a text, at several learning rates and seeds, in a few steps
each.
"""

import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from weft import recipe as R
from weft.data.preparing.prepare import prepare
from weft.data.preparing.prepared import PreparedData
from weft.runs.directory import RunDirectory
from weft.studies.launchers import Launcher, ThisProcess
from weft.studies.runner import run_all
from weft.studies.runs import StudyRun

from ..commands import tuned_data as made

STEPS = 8


def small_runs(folder: Path, rates: Iterable[float] = (1e-3, 2e-3, 3e-3)) -> list[StudyRun]:
    """One run per learning rate in a study, on data beside it."""
    data = made.data(folder.with_name("data"))
    prepared = prepare(data)
    recipes = [small_recipe(data, rate) for rate in rates]
    return [StudyRun(folder / recipe.name, recipe, prepared) for recipe in recipes]


def small_recipe(data: R.Data, rate: float, **more: Any) -> R.Recipe:
    return R.Recipe(
        name=f"rate-{rate:g}",
        model=made.bert(),
        task=R.Classification(),
        data=data,
        batch=R.FixedBatch(size=8, length=48),
        steps=STEPS,
        optimiser=R.AdamW(lr=rate),
        eval_every=4,
        checkpoints=R.Checkpoints(every_steps=2, keep=1),
        threads=1,
        precision="fp32",
        **more,
    )


def failing(run: StudyRun) -> StudyRun:
    """The run with data that are not prepared."""
    nowhere = PreparedData(run.recipe.data, run.directory / "nowhere")
    return run._replace(prepared=nowhere)


def run_study(
    folder: Path, rounds: Iterable[list[StudyRun]], launcher: Launcher | None = None
) -> list[tuple[str, str]]:
    """Run a study; return the state of each run that ended, in the order of the events."""
    launcher = launcher or ThisProcess(lambda line: None)
    events = run_all(RunDirectory(folder), rounds, launcher)
    return [(event.run.directory.name, event.state) for event in events if event.state != "running"]


def weights(folder: Path) -> dict[str, str]:
    """The digest of each run's model."""
    files = sorted(folder.glob("*/model/model.safetensors"))
    return {file.parts[-3]: sha256(file.read_bytes()).hexdigest() for file in files}


def killed(work: Callable[[], Any]) -> int:
    """What `work` ends with in a child process: minus the signal that ended it, or 0."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def with_steps(run: StudyRun, steps: int) -> StudyRun:
    return run._replace(recipe=replace(run.recipe, steps=steps))
