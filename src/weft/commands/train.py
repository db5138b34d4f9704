"""The commands `weft prepare`, `train`, `resume` and `status`."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..support.console import print_result, report, report_on_first_rank, spinner
from . import EXIT_STOPPED, export_hint
from .train_options import PrepareOptions, ResumeOptions, RunOptions, StatusOptions, TrainOptions

if TYPE_CHECKING:
    from ..recipe import Logger, Recipe

RUNS = "runs"  # default folder of runs


@contextmanager
def data_of_recipe(path: str) -> Iterator[None]:
    """Add a pointer to the recipe's data section to the error about a missing file."""
    from ..data.reading.files import MissingFile

    try:
        yield
    except MissingFile as error:
        file = Path(path.partition(":")[0])
        if file.suffix != ".py" or "\nData:" not in file.read_text():
            raise
        raise MissingFile(f"{error}; the head of {file} describes its data") from None


def prepare(options: PrepareOptions) -> int:
    """Prepare data as Arrow shards.

    Takes a recipe, or files: weft prepare a.txt.gz b.txt.gz --output shards.
    The same command resumes; it verifies finished shards by SHA-256 and rebuilds damaged ones.
    """
    from .. import recipe
    from ..data.preparing.prepare import prepare as make
    from ..data.reading.quarantine import quarantine_notes
    from ..runs.logs import progress
    from .prepare import data_from_options, parse_part, prepared_page, prepared_summary

    if options.paths[0].partition(":")[0].endswith((".py", "recipe.json")):
        data = recipe.apply_overrides(recipe.load_recipe(options.paths[0]), list(options.set)).data
    else:
        data = data_from_options(options)
    data = replace(
        data, max_bad_row_fraction=max(data.max_bad_row_fraction, options.max_bad_row_fraction)
    )
    with (
        data_of_recipe(options.paths[0]),
        progress.PrepareProgressLine("reading the sources") as preparing,
    ):
        prepared = make(
            data,
            options.output,
            shard=parse_part(options.shard),
            workers=options.workers,
            report=preparing.show,
            verify=True,
            overwrite=options.overwrite,
            on=options.on,
        )
    for line in quarantine_notes(prepared.folder):
        report(line)
    summary = prepared_summary(prepared.folder, preparing)
    print_result(options.json, summary, lambda width: prepared_page(summary))
    return 0


def train(options: TrainOptions) -> int:
    """Train a recipe, or resume it bit for bit.

    The same command resumes an interrupted run.
    Ctrl-C or SIGTERM saves a checkpoint and exits with code 75.
    """
    from .. import recipe
    from ..support.user_code import load_code_of_run
    from ..training.checkpoints.compatibility import recipe_of

    folder = Path(options.recipe)
    load_code_of_run(folder, options.code_changed)
    if folder.is_dir():
        saved = recipe_of(folder, lambda line: None)
    else:
        saved = recipe.load_recipe(options.recipe)
    overrides = [*options.set, *options.overrides()]
    changed = recipe.apply_overrides(saved, overrides, report_on_first_rank)
    out = folder if folder.is_dir() else None
    if options.output:
        out = Path(options.output)
    with data_of_recipe(options.recipe):
        path, exit_code = train_with_progress(changed, out, options)
    if is_first():
        report_run(path, options.json)
    return exit_code


def resume(options: ResumeOptions) -> int:
    """Resume a run; --verify checks that it resumes exactly."""
    from ..support.user_code import load_code_of_run

    load_code_of_run(Path(options.run_folder), options.code_changed)
    if options.verify:
        return verify(options)
    path, exit_code = continue_run(Path(options.run_folder), options)
    if is_first():
        report_run(path, options.json)
    return exit_code


def verify(options: ResumeOptions) -> int:
    """Train the last interval of a run again and compare the results."""
    if options.precision is not None:
        raise ValueError("--verify uses the precision of the run; remove --precision")
    from ..runs.logs.log import check_log
    from ..runs.logs.progress import CountProgressLine
    from ..training.checkpoints.compatibility import recipe_of

    # Before importing torch, in case it is not a run
    data = recipe_of(Path(options.run_folder), lambda line: None).data
    check_log(Path(options.run_folder), report)
    text = f"training the last interval of {options.run_folder} again"
    with CountProgressLine("trained again", "steps", text) as progress:
        from ..data.preparing.prepare import prepare_for_run
        from ..runs.verify_resume import verify_resume

        prepared = prepare_for_run(data)
        proof = verify_resume(options.run_folder, prepared, options.device, progress)
    plain = proof._asdict() | {"same": proof.saved_digest == proof.repeated_digest}
    message = (
        f"steps {proof.first_step:,} to {proof.last_step:,} trained again in "
        f"{proof.seconds:.0f} s: "
    )
    message += (
        f"bit-identical (SHA-256 {proof.saved_digest[:16]}…)"
        if plain["same"]
        else f"NOT identical: {proof.saved_digest[:16]}… saved, "
        f"{proof.repeated_digest[:16]}… repeated"
    )
    print_result(options.json, plain, lambda width: message)
    return 0 if plain["same"] else 1


def continue_run(folder: Path, options: RunOptions) -> tuple[Path, int]:
    """Train the rest of a run; only some options may change."""
    from ..interop.manifest import check_model_of_run
    from ..recipe import apply_overrides
    from ..runs.logs.log import check_log, is_finished
    from ..training.checkpoints.compatibility import recipe_differences, recipe_of

    saved = recipe_of(folder, lambda line: None)  # the run itself says what it repairs
    recipe = apply_overrides(saved, options.overrides())
    for name, before in recipe_differences(saved, recipe):
        raise ValueError(
            f"{folder} was started with {name} = {before!r}; start another run to change it"
        )
    if is_finished(folder) and not any((folder / "checkpoints").glob("step-*")):
        check_model_of_run(folder / "model")
        check_log(folder, report_on_first_rank)
        return folder, 0  # weft tune keeps only the model
    return train_with_progress(recipe, folder, options)


def with_loggers(loggers: "tuple[Logger, ...]", names: Sequence[str]) -> "tuple[Logger, ...]":
    """Return `loggers` with the loggers of these names added."""
    from ..recipe import logger_named

    new = tuple(logger_named(name) for name in dict.fromkeys(names))
    kinds = {type(logger) for logger in new}
    return (*(logger for logger in loggers if type(logger) not in kinds), *new)


def is_first() -> bool:
    return int(os.environ.get("RANK", "0")) == 0


def train_with_progress(
    recipe: "Recipe", out: Path | None, options: RunOptions
) -> tuple[Path, int]:
    """Prepare the data and train, with an estimate and live progress.
    Return the run directory and the exit code."""
    with spinner("loading PyTorch"):
        from ..data.preparing.ownership import refuse_strange
        from ..runs.directory import run_directory
        from ..runs.logs.train_progress import TrainScreen
        from ..runs.start import prepared_for
        from ..runs.train import RunStopped
        from ..runs.train import train as steps

    recipe = replace(recipe, loggers=with_loggers(recipe.loggers, options.log_to))
    directory = run_directory(out, recipe.name)
    exit_code = 0
    if is_first():
        refuse_strange(directory.path, "recipe.json", "checkpoints/step-*/manifest.json")
    screen = TrainScreen(is_first())
    try:
        show = screen.preparing.show
        with prepared_for(recipe, directory, show, options.code_changed) as prepared:
            for event in steps(
                recipe,
                prepared,
                directory,
                validation_progress=screen.show_validation,
                on_start=screen.start,
                code_changed=options.code_changed,
            ):
                screen.show(event)
    except RunStopped:
        exit_code = EXIT_STOPPED
    finally:
        screen.close()
    return directory.path, exit_code


def report_run(folder: Path, as_json: bool) -> None:
    """Print the status of a run and how to continue or export it."""
    from ..runs.logs import status

    run_status = status.run_status(folder, lambda line: None)  # the run itself has said it
    print_result(as_json, run_status, lambda width: status.status_page(run_status))
    if not run_status["finished"]:
        report_on_first_rank(
            f"stopped; saved step {run_status['checkpoint_step']:,}; to resume: "
            f"weft resume {folder}"
            if run_status["checkpoint_step"]
            else "stopped before the first checkpoint; the next start begins at step 1"
        )
    elif command := export_hint(str(folder)):
        report_on_first_rank(command)


def status(options: StatusOptions) -> int:
    """Show the progress and metrics of runs."""
    from ..runs.logs import status

    folders = status.find_runs(list(options.run_folders) or [RUNS])
    statuses = [status.run_status(folder) for folder in folders]
    if len(statuses) == 1:
        print_result(options.json, statuses[0], lambda width: status.status_page(statuses[0]))
    else:
        print_result(options.json, statuses, lambda width: status.status_table(statuses))
    return 0
