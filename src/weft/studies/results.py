"""The results of a search: one row per trial, and the best trial's model."""

import json
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from .. import recipe as R
from ..interop.huggingface.companion_files import copy_companion_files
from ..interop.manifest import CURVE, find_damage, write_finished, write_manifest
from ..runs.logs.log import is_finished, mark_unfinished, read_log
from ..support.console import Report
from ..support.storage import rename, write_atomically
from ..training.checkpoints.compatibility import recipe_differences, recipe_of
from .plan import RESULTS_FILE, TunePlan
from .runs import StudyRun, has_model

Result = dict[str, Any]


class Results:
    """The results of all trials in the folder of a search. Their order does not depend on which
    trial ends first: trials of the table, then planned trials of this call, then others in the
    folder.

    Args:
        plan: the plan of the trials.
        report: called with a line per omitted trial.
    """

    def __init__(self, plan: TunePlan, report: Report) -> None:
        self.plan = plan
        self.report = report
        recorded = recorded_trials(plan)
        self.recorded = [*recorded]
        self.planned = list[str]()
        self.known = finished_trials(plan, recorded, report)
        self.failures = list[str]()

    def without_known(self, recipes: Sequence[R.Recipe]) -> list[R.Recipe]:
        """Plan trials; return those without a result."""
        self.planned += [recipe.name for recipe in recipes]
        return [recipe for recipe in recipes if recipe.name not in self.known]

    def add(self, run: StudyRun, failure: str) -> None:
        """Add a finished or failed trial, and write the table."""
        recipe = run.recipe
        metric = self.plan.metric
        if failure:
            self.failures.append(f"{recipe.name} failed: {failure}")
            self.report(f"{self.failures[-1]}; omitted")
            return
        result = trial_result(run.directory, metric, recipe.optimiser.lr, recipe.seed)
        if result is None:
            self.report(f"{recipe.name}: no validation has a finite {metric}; omitted")
            return
        self.known[recipe.name] = result
        self.record()

    def in_order(self) -> list[Result]:
        names = dict.fromkeys([*self.recorded, *self.planned, *self.known])
        return [self.known[name] for name in names if name in self.known]

    def best(self) -> Result:
        """Return the best trial; for equal ones, the first."""
        return best_trial(self.in_order(), self.plan)

    def best_of_first_seed(self) -> Result:
        """Return the best trial with the first seed: learning rates are compared at the same
        seed."""
        done = self.in_order()
        if not done:
            reason = f"no validation has a finite {self.plan.metric}; give lower --learning-rates"
            raise ValueError(f"{self.plan.folder}: {'; '.join(self.failures) or reason}")
        seed = self.plan.recipe.seed
        return best_trial([one for one in done if one["seed"] == seed] or done, self.plan)

    def record(self) -> None:
        """Write the table, and delete the checkpoints of all finished trials except the best."""
        best = self.best()
        for one in self.known.values():
            if one is not best:
                shutil.rmtree(self.plan.folder / one["trial"] / "checkpoints", ignore_errors=True)
        table = results_table(self.plan, self.in_order())
        write_atomically(
            self.plan.folder / RESULTS_FILE, (json.dumps(table, indent=1) + "\n").encode()
        )


def best_trial(done: list[Result], plan: TunePlan) -> Result:
    best: Result = plan.best_of(done, key=lambda trial: trial[plan.metric])
    return best


# Trials of earlier calls


def trial_folders(plan: TunePlan) -> list[Path]:
    """Return the folders that may contain trials of earlier calls. The last one is the search
    folder, which has a copy of the best trial, possibly the only one. A damaged copy is replaced.
    """
    folders = sorted(plan.folder.glob("trial-*"))
    with suppress(ValueError, OSError):
        R.recipe_of_run(plan.folder)
        folders.append(plan.folder)
    return folders


def recorded_trials(plan: TunePlan) -> dict[str, Result]:
    """Return the trials in the results table by name; empty if it is missing or damaged."""
    try:
        trials = json.loads((plan.folder / RESULTS_FILE).read_text())["trials"]
        return {one["trial"]: one for one in trials if isinstance(one[plan.metric], int | float)}
    except (OSError, ValueError, LookupError, TypeError):
        return {}


def finished_trials(
    plan: TunePlan, recorded: dict[str, Result], report: Report
) -> dict[str, Result]:
    """Return the results of the finished trials of earlier calls by name."""
    results = dict[str, Result]()
    for folder in trial_folders(plan):
        if not is_finished(folder):
            continue
        begun = recipe_of(folder, report)
        recipe = plan.trial_recipe(begun.optimiser.lr, begun.seed)
        if recipe.name in results or not has_model(folder):
            continue
        if recipe_differences(begun, recipe):
            continue
        result = recorded.get(recipe.name) or trial_result(
            folder, plan.metric, recipe.optimiser.lr, recipe.seed
        )
        if result is not None:
            results[recipe.name] = result | {"trial": recipe.name}
    return results


def trial_result(folder: Path, metric: str, lr: float, seed: int) -> Result | None:
    """Return the best result of a finished trial; None without a finite metric."""
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


# The table and the model


def results_table(plan: TunePlan, done: list[Result]) -> dict[str, Any]:
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


def publish_best(plan: TunePlan, trial: str) -> None:
    """Copy a trial's model, log and recipe to the search folder, which then opens like a finished
    run. An existing copy is kept. The curve, which marks a run as finished, is removed first and
    written last, so that the next call repairs an interrupted copy.
    """
    best = plan.folder / trial
    if is_published(plan, trial):
        return
    new = plan.folder / ".model"
    shutil.rmtree(new, ignore_errors=True)
    shutil.copytree(best / "model", new)
    copy_companion_files(Path(str(plan.recipe.init_from)), new, plan.recipe.model)
    write_manifest(new)
    mark_unfinished(plan.folder)
    shutil.rmtree(plan.folder / "model", ignore_errors=True)
    rename(new, plan.folder / "model")
    for file in ("log.jsonl", "recipe.json"):
        write_atomically(plan.folder / file, (best / file).read_bytes())
    write_finished(plan.folder)
    write_atomically(plan.folder / CURVE, (best / CURVE).read_bytes())


def is_published(plan: TunePlan, trial: str) -> bool:
    """Return whether the search folder has an undamaged copy of this trial."""
    if not is_finished(plan.folder) or plan.folder not in trial_folders(plan):
        return False
    same = R.recipe_of_run(plan.folder).name == trial
    return same and find_damage(plan.folder / "model") is None
