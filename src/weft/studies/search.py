"""The search of `weft tune` over learning rates and seeds; each trial is a run of a study."""

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from ..interop.manifest import check_model_of_run
from ..runs.directory import RunDirectory
from ..runs.logs.log import read_log
from ..support.console import Report
from ..training.checkpoints.compatibility import recipe_differences, recipe_of
from ..training.step import TrainStep
from .launchers import Launcher, RunEvent, ThisProcess
from .plan import TunePlan
from .results import Results, publish_best, trial_folders
from .runner import run_all
from .runs import StudyRun, has_begun, refuse_differences

# Options of weft tune by the recipe field that they set
OPTIONS = {
    "steps": "--epochs",
    "eval_every": "--evals-per-epoch",
    "batch.size": "--batch-size",
    "batch.length": "--max-length",
    "average.metric": "--metric",
    "optimiser.layer_decay": "--layer-decay",
    "precision": "--precision",
}


class TrialStep(NamedTuple):
    """A step of a trial.

    Attributes:
        number: the number of the trial, from 1.
        best: the best validation so far in this trial.
        seconds_left: the estimated seconds left for all trials.
    """

    number: int
    lr: float
    seed: int
    event: TrainStep
    best: float | None
    seconds_left: float


def run_trials(
    plan: TunePlan, report: Report, launcher: Launcher | None = None
) -> Iterator[TrialStep]:
    """Run the unfinished trials of a plan. The best trial in the folder, from this or earlier
    calls, becomes the model of the folder.

    Args:
        plan: the plan of the trials.
        report: called with each line of output.
        launcher: starts the trials (default: one after another in this process, which yields each
            step).

    Raises:
        RunStopped: see `runs.train.train`.
    """
    folder = RunDirectory(plan.folder)
    with folder.lock():
        check_existing_trials(plan, report)
        results = Results(plan, report)
        rounds = trial_rounds(plan, results, report)
        events = run_all(folder, rounds, launcher or ThisProcess(report))
        yield from trial_steps(plan, results, events, report)
        results.record()
        publish_best(plan, results.best()["trial"])


def trial_rounds(plan: TunePlan, results: Results, report: Report) -> Iterator[list[StudyRun]]:
    """Yield each learning rate with the first seed, then the best one with further seeds (BERT,
    arXiv:1810.04805, section 4.1).
    """

    def trials(rates_and_seeds: Iterable[tuple[float, int]]) -> list[StudyRun]:
        recipes = [plan.trial_recipe(rate, seed) for rate, seed in rates_and_seeds]
        unknown = results.without_known(recipes)
        return [StudyRun(plan.folder / recipe.name, recipe, plan.prepared) for recipe in unknown]

    seed = plan.recipe.seed
    yield trials((rate, seed) for rate in plan.learning_rates)
    best = results.best_of_first_seed()
    further = trials((best["lr"], seed + i) for i in range(1, plan.seeds))
    if further and best["lr"] not in plan.learning_rates:
        report(
            f"{best['trial']} of an earlier call is the best with seed {best['seed']} "
            f"({plan.metric} {best[plan.metric]:.4f}); "
            f"further seeds use its learning rate {best['lr']:g}"
        )
    yield further


def check_existing_trials(plan: TunePlan, report: Report) -> None:
    """Build every recipe once, so that an invalid learning rate or a trial with other settings is
    reported before the first step.
    """
    for rate in plan.learning_rates:
        for i in range(plan.seeds):
            plan.trial_recipe(rate, plan.recipe.seed + i)
    check_model_of_run(plan.folder / "model")
    for folder in trial_folders(plan):
        if has_begun(folder):
            begun = recipe_of(folder, report)
            planned = plan.trial_recipe(begun.optimiser.lr, begun.seed)
            refuse_differences(folder, recipe_differences(begun, planned), OPTIONS)


def trial_steps(
    plan: TunePlan, results: Results, events: Iterable[RunEvent], report: Report
) -> Iterator[TrialStep]:
    """Add finished trials to the results; yield the steps of the others, or report that they run if
    their steps are not observed.
    """
    pace = TimeEstimate((len(plan.learning_rates) + plan.seeds - 1) * plan.recipe.steps)
    trial = ""
    best = None
    for run, state, step, line in events:
        recipe = run.recipe
        if step is None:
            if state == "running":
                report(
                    f"{recipe.name} runs in a child process; progress: weft status {run.directory}"
                )
            else:
                results.add(run, line)
            continue
        if recipe.name != trial or step.step % (recipe.eval_every or 1) == 0:
            best = best_so_far(run.directory, plan)
        trial = recipe.name
        number = results.planned.index(trial) + 1
        left = pace.left((number - 1) * recipe.steps + step.step)
        yield TrialStep(number, recipe.optimiser.lr, recipe.seed, step, best, left)


class TimeEstimate:
    """Estimate of the time left, from the steps of this process."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.taken = 0
        self.begun = time.monotonic()

    def left(self, step: int) -> float:
        self.taken += 1
        return (time.monotonic() - self.begun) / self.taken * (self.total - step)


def best_so_far(folder: Path, plan: TunePlan) -> float | None:
    """Return the best validation score so far."""
    lines = read_log(folder / "log.jsonl")
    validations = [line["valid"] for line in lines if "valid" in line]
    values = [metrics[plan.metric] for metrics in validations if plan.metric in metrics]
    return plan.best_of(values) if values else None
