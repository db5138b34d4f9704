"""The command `weft tune`: fine-tuning over learning rates and seeds."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..interop.huggingface.hub import check_model_folder
from ..support.console import count_of, print_result, report
from ..support.options.shared import VerbOptions
from . import EXIT_STOPPED, export_hint
from .files import check_input_files, check_outside_model, warn_of_shared_files
from .tune_options import TuneOptions

if TYPE_CHECKING:
    from ..studies.plan import TunePlan
    from ..studies.search import TrialStep


@dataclass(frozen=True, kw_only=True)
class TuneVerbOptions(TuneOptions, VerbOptions):
    """The options of `weft tune`: those of `weft.tune` and the common command options."""


def tune(options: TuneVerbOptions) -> int:
    """Fine-tune a model on labelled data.

    Detects and prints the format, columns and task. Tries several learning rates, and several seeds
    for small data; RUN/model is the best on the validation data. The same command resumes. Example:
    weft tune bert-base-uncased --data reviews.csv --valid valid.csv
    """
    check_files(options)
    from ..runs.logs import progress
    from ..runs.train import RunStopped
    from ..studies.plan import RESULTS_FILE

    with progress.PrepareProgressLine("reading the data") as preparing:
        plan = plan_tuning(options, report, preparing.show)
    report(plan_line(plan))
    try:
        print_trials(plan, options.at_a_time)
    except RunStopped:
        report("stopped and saved; run it again to continue")
        return EXIT_STOPPED
    results = json.loads((plan.folder / RESULTS_FILE).read_text())
    print_result(options.json, results, lambda width: page(results))
    if command := export_hint(str(plan.folder)):
        report(command)
    return 0


def plan_tuning(
    options: TuneOptions, report: Callable[[str], None] | None = None, progress: Any = None
) -> "TunePlan":
    """Suggest a recipe for the data and the checkpoint, prepare its data, and return the trial
    plan.

    Args:
        options: the options of `weft tune`.
        report: called with each line about the detected settings.
        progress: called while the data is prepared.
    """
    from ..nn.kernels.devices import resolve_device, resolve_precision
    from ..studies.plan import (
        TunePlan,
        default_seeds,
        model_of_unfinished_run,
        prepare_trials,
        tuning_folder,
    )
    from ..suggest.checkpoint import open_checkpoint
    from ..suggest.opening import open_tables
    from ..suggest.suggest import suggest

    precision: Any = resolve_precision(options.precision, resolve_device(options.device))
    folder = tuning_folder(options.output, options.checkpoint, options.data[0])
    model = model_of_unfinished_run(options.checkpoint, folder)
    checkpoint = open_checkpoint(options.checkpoint, model)
    tables = open_tables(options.data, options.valid, options.reading, options.task, checkpoint)
    suggestion = suggest(
        tables, options.task, checkpoint, budget=options.budget, tuning=options.tuning
    )
    for line in (suggestion.summary, *suggestion.notes):
        if report is not None:
            report(line)
    recipe = suggestion.named("trial").recipe
    prepared = prepare_trials(folder, recipe.data, progress)
    recipe = replace(recipe, data=prepared.data, device=options.device, precision=precision)
    rates = tuple(dict.fromkeys(options.learning_rates)) or suggestion.learning_rates
    seeds = options.seeds or default_seeds(prepared)
    return TunePlan(folder, suggestion.summary, suggestion.task, recipe, prepared, rates, seeds)


def print_trials(plan: "TunePlan", at_a_time: int) -> None:
    """Run the trials of a plan, with a progress line for the running one."""
    from ..runs.logs import progress
    from ..studies.launchers import launcher_for
    from ..studies.search import run_trials

    loss = 0.0
    with (
        progress.ProgressLine() as line,
        progress.CountProgressLine("validated", "samples") as validation,
    ):
        for tick in run_trials(plan, report, launcher_for(at_a_time, report, validation)):
            event = tick.event
            loss = event.loss if event.step == 1 else loss + 0.1 * (event.loss - loss)
            if line.is_due:
                line.print(trial_line(plan, tick, loss))


def check_files(options: TuneVerbOptions) -> None:
    """Raise ValueError before the work if a file or the model is missing, or if the output is in
    the model's folder."""
    check_input_files("--data", options.data)
    check_input_files("--valid", options.valid)
    warn_of_shared_files(options.data, options.valid)
    check_model_folder(options.checkpoint)
    check_outside_model("--output", [options.output], options.checkpoint)


def plan_line(plan: "TunePlan") -> str:
    row = "image" if plan.recipe.data.rows.image_columns else "row"
    return (
        f"{count_of(plan.train_rows, f'training {row}')}, "
        f"{count_of(plan.valid_rows, f'validation {row}')}; "
        f"{count_of(plan.recipe.steps, 'step')} per trial, at most {plan.recipe.batch.length} "
        f"tokens per {row}, {plan.recipe.precision}"
    )


def trial_line(plan: "TunePlan", t: "TrialStep", loss: float) -> str:
    from ..support.console import format_duration

    trials = len(plan.learning_rates) + plan.seeds - 1
    best = "" if t.best is None else f", best {plan.metric} {t.best:.4f}"
    return (
        f"trial {t.number} of {trials} (lr {t.lr:g}, seed {t.seed}): step "
        f"{t.event.step:,}/{plan.recipe.steps:,}, "
        f"loss {loss:.4f}{best}, about {format_duration(t.seconds_left)} left"
    )


def page(scores: dict[str, Any]) -> Any:
    from rich.console import Group
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("trial", "lr", "seed", f"valid {scores['metric']}", "at step", "seconds", ""):
        table.add_column(name, justify="left" if name in ("trial", "") else "right")
    for one in scores["trials"]:
        mark = "← best" if one["trial"] == scores["best"] else ""
        table.add_row(
            one["trial"],
            f"{one['lr']:g}",
            str(one["seed"]),
            f"{one[scores['metric']]:.4f}",
            f"{one['step']:,}",
            f"{one['seconds']:.0f}",
            mark,
        )
    return Group(
        table,
        *majority_lines(scores.get("majority")),
        "",
        f"{Path(scores['run']) / 'model'} has the best validation score; for an unbiased score, "
        "evaluate on other data:",
        f"weft evaluate {scores['run']} --data FILE",
    )


def majority_lines(majority: dict[str, Any] | None) -> list[str]:
    """Return the accuracy of the most frequent class, as a baseline for a classifier."""
    if majority is None:
        return []
    return [
        "",
        f"baseline: always {majority['class']!r}, the most frequent validation class: accuracy "
        f"{majority['share']:.4f}",
    ]
