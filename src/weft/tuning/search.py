"""Trials of a search, each an ordinary run; the best one becomes the model of the search."""

import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from .. import recipe as R
from ..data.prepare import prepare_for_run
from ..interop.companion_files import copy_companion_files
from ..interop.manifest import (
    MANIFEST_FILE,
    check_model_of_run,
    find_damage,
    write_finished,
    write_manifest,
)
from ..runs.log import CURVE, is_finished, mark_unfinished, read_log
from ..runs.train import train
from ..storage import rename, write_atomically
from ..training.compatibility import recipe_differences, recipe_of
from ..training.step import TrainStep
from ..training.validation import Progress, ignore_progress
from .plan import RESULTS_FILE, TunePlan


class TrialStep(NamedTuple):
    """A step of a trial."""

    number: int  # of the trial, from 1
    lr: float
    seed: int
    event: TrainStep
    best: float | None  # so far in this trial
    seconds_left: float  # of all trials


def run_trials(
    plan: TunePlan,
    report: Callable[[str], None],
    validation_progress: Progress = ignore_progress,
) -> Iterator[TrialStep]:
    """First every learning rate with the first seed, then the best one with further seeds (BERT, arXiv:1810.04805, section 4.1).
    The last trial's end writes the model of the whole: the best of all trials in the folder, those of earlier calls included.

    Raises:
        RunStopped: as `runs.train.train` does.
    """
    check_existing_trials(plan, report)
    trials_to_run = [(rate, plan.recipe.seed) for rate in plan.learning_rates]
    done = earlier_trials(plan, report)
    tried = 0
    pace = TimeEstimate((len(plan.learning_rates) + plan.seeds - 1) * plan.recipe.steps)
    while trials_to_run:
        rate, seed = trials_to_run.pop(0)
        recipe = plan.trial_recipe(rate, seed)
        folder = plan.folder / recipe.name
        if recipe.name not in done and not is_trial_complete(folder, recipe):
            best = best_so_far(folder, plan)
            for event in train(
                recipe,
                prepare_for_run(recipe.data),
                folder,
                report=report,
                validation_progress=validation_progress,
            ):
                if event.step % (recipe.eval_every or 1) == 0:
                    best = best_so_far(folder, plan)
                yield TrialStep(
                    tried + 1,
                    rate,
                    seed,
                    event,
                    best,
                    pace.left(tried * recipe.steps + event.step),
                )
        tried += 1
        result = done.get(recipe.name) or trial_result(folder, plan.metric, rate, seed)
        if result is None:
            report(f"{recipe.name}: no validation gave a finite {plan.metric}; left out")
        else:
            done[recipe.name] = result
            record_trials(plan, [*done.values()])
        if tried == len(plan.learning_rates):
            best_rate = best_of_first_seed([*done.values()], plan)["lr"]
            trials_to_run = [(best_rate, plan.recipe.seed + i) for i in range(1, plan.seeds)]
    publish_best(plan, [*done.values()])


def check_existing_trials(plan: TunePlan, report: Callable[[str], None]) -> None:
    """Build every recipe once, so that a wrong learning rate or a trial of other settings is reported before the first step."""
    for rate in plan.learning_rates:
        for i in range(plan.seeds):
            plan.trial_recipe(rate, plan.recipe.seed + i)
    check_model_of_run(plan.folder / "model")
    for folder in trial_folders(plan):
        if is_finished(folder) or any((folder / "checkpoints").glob("step-*")):
            begun = recipe_of(folder, report)
            for name, before in recipe_differences(begun, same_trial(plan, begun)):
                raise ValueError(
                    f"{folder} was begun with another recipe: {name} was {before!r}; "
                    "undo the change, or give another --output"
                )


def trial_folders(plan: TunePlan) -> list[Path]:
    """Return the folders that trials of earlier calls may be in. The last one is that of the whole, which has a copy of the best trial:
    of a trial whose own folder was removed, the only one. A damaged copy is made again."""
    folders = sorted(plan.folder.glob("trial-*"))
    with suppress(ValueError, OSError):
        R.recipe_of_run(plan.folder)
        folders.append(plan.folder)
    return folders


def same_trial(plan: TunePlan, begun: R.Recipe) -> R.Recipe:
    """Return the plan's recipe at the learning rate and the seed of another trial."""
    return plan.trial_recipe(begun.optimiser.lr, begun.seed)


def earlier_trials(plan: TunePlan, report: Callable[[str], None]) -> dict[str, dict[str, Any]]:
    """Return the results of the finished trials of earlier calls by name, in the order in which they were recorded."""
    recorded = recorded_trials(plan)
    results = dict[str, dict[str, Any]]()
    for folder in trial_folders(plan):
        if not is_finished(folder):
            continue
        recipe = same_trial(plan, recipe_of(folder, report))
        if recipe.name in results or not is_trial_complete(folder, recipe):
            continue
        result = recorded.get(recipe.name) or trial_result(
            folder, plan.metric, recipe.optimiser.lr, recipe.seed
        )
        if result is not None:
            results[recipe.name] = result | {"trial": recipe.name}
    order = [*recorded]
    return dict(
        sorted(
            results.items(), key=lambda one: order.index(one[0]) if one[0] in order else len(order)
        )
    )


def recorded_trials(plan: TunePlan) -> dict[str, dict[str, Any]]:
    """Return the trials in the table of results by name; none if the table is missing or damaged."""
    try:
        trials = json.loads((plan.folder / RESULTS_FILE).read_text())["trials"]
        return {one["trial"]: one for one in trials if isinstance(one[plan.metric], int | float)}
    except (OSError, ValueError, LookupError, TypeError):
        return {}


class TimeEstimate:
    """Time left, extrapolated from the steps of this process."""

    def __init__(self, total: int) -> None:
        self.total, self.taken, self.begun = total, 0, time.monotonic()

    def left(self, step: int) -> float:
        self.taken += 1
        return (time.monotonic() - self.begun) / self.taken * (self.total - step)


def is_trial_complete(folder: Path, recipe: R.Recipe) -> bool:
    """Return whether the trial is finished, its model is undamaged, and its recipe is this one."""
    model = folder / "model"
    whole = model.is_dir() and (not (model / MANIFEST_FILE).exists() or find_damage(model) is None)
    return is_finished(folder) and whole and not recipe_differences(R.recipe_of_run(folder), recipe)


def best_so_far(folder: Path, plan: TunePlan) -> float | None:
    """Return the best validation so far."""
    lines = read_log(folder / "log.jsonl")
    validations = [line["valid"] for line in lines if "valid" in line]
    values = [metrics[plan.metric] for metrics in validations if plan.metric in metrics]
    return plan.best_of(values) if values else None


def trial_result(folder: Path, metric: str, lr: float, seed: int) -> dict[str, Any] | None:
    """Return the best of a finished trial; None where nothing finite was measured."""
    lines = read_log(folder / "log.jsonl")
    best = next((line["best"] for line in reversed(lines) if "best" in line), None)
    if best is None:
        return None
    seconds = sum(line["seconds"] for line in lines if "seconds" in line)
    return {
        "trial": folder.name,
        "lr": lr,
        "seed": seed,
        metric: best[metric],
        "step": best["step"],
        "seconds": round(seconds, 1),
        "valid": {name: number for name, number in best.items() if name != "step"},
    }


def best_trial(done: list[dict[str, Any]], plan: TunePlan) -> dict[str, Any]:
    """Return the best trial; of equal ones, the first."""
    best: dict[str, Any] = plan.best_of(done, key=lambda trial: trial[plan.metric])
    return best


def best_of_first_seed(done: list[dict[str, Any]], plan: TunePlan) -> dict[str, Any]:
    """Return the best trial among those with the first seed: rates are compared at the same one."""
    if not done:
        raise ValueError(
            f"{plan.folder}: no validation gave a finite {plan.metric}; give lower --learning-rates"
        )
    return best_trial([one for one in done if one["seed"] == plan.recipe.seed] or done, plan)


def record_trials(plan: TunePlan, done: list[dict[str, Any]]) -> None:
    """Write the table of results, and delete the checkpoints of all finished trials but the best."""
    best = best_trial(done, plan)
    for one in done:
        if one is not best:
            shutil.rmtree(plan.folder / one["trial"] / "checkpoints", ignore_errors=True)
    write_atomically(
        plan.folder / RESULTS_FILE,
        (json.dumps(results_table(plan, done), indent=1) + "\n").encode(),
    )


def results_table(plan: TunePlan, done: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "run": str(plan.folder),
        "checkpoint": plan.recipe.init_from,
        "task": plan.task,
        "data": plan.summary,
        "metric": plan.metric,
        "train_rows": plan.train_rows,
        "valid_rows": plan.valid_rows,
        "majority": plan.majority,
        "length": plan.recipe.batch.length,
        "steps": plan.recipe.steps,
        "precision": plan.recipe.precision,
        "trials": done,
        "best": best_trial(done, plan)["trial"],
    }


def publish_best(plan: TunePlan, done: list[dict[str, Any]]) -> None:
    """Copy the best trial's model, recipe and log up: the folder then opens like any finished run. If it has them already, it stays as
    it is."""
    best = plan.folder / best_trial(done, plan)["trial"]
    there = is_finished(plan.folder) and plan.folder in trial_folders(plan)
    if (
        there
        and R.recipe_of_run(plan.folder).name == best.name
        and find_damage(plan.folder / "model") is None
    ):
        return
    mark_unfinished(plan.folder)
    fresh = plan.folder / ".model"
    shutil.rmtree(fresh, ignore_errors=True)
    shutil.copytree(best / "model", fresh)
    copy_companion_files(Path(str(plan.recipe.init_from)), fresh, plan.recipe.model)
    write_manifest(fresh)
    shutil.rmtree(plan.folder / "model", ignore_errors=True)
    rename(fresh, plan.folder / "model")
    for file in ("log.jsonl", "recipe.json"):
        shutil.copyfile(best / file, plan.folder / file)
    write_finished(plan.folder)
    shutil.copyfile(best / CURVE, plan.folder / CURVE)
