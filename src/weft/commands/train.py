"""`weft prepare`, `train`, `resume` and `status`."""

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from ..console import print_result, report, report_on_first_rank, spinner
from ..recipe import Logger, Recipe
from . import EXIT_STOPPED, AddCommand, export_hint
from .options import (
    TRAINING_PRECISIONS,
    add_code_changed,
    add_column_names,
    add_columns_option,
    add_device,
    add_max_bad_rows,
    add_precision,
    add_set,
    positive_int,
)

RUNS = "runs"  # the folder that runs are written to by default


class RunOptions(NamedTuple):
    """The options of a run that may differ at each start."""

    device: str | None
    precision: str | None
    log_to: list[str]
    code_changed: bool

    def overrides(self) -> list[str]:
        """Return the options that change a field of the recipe, as --set takes them."""
        values = {"device": self.device, "precision": self.precision}
        return [f"{name}={value}" for name, value in values.items() if value is not None]


@contextmanager
def data_of_recipe(path: str) -> Iterator[None]:
    """Add to the error about a missing file where the recipe describes its data."""
    from ..data.files import MissingFile

    try:
        yield
    except MissingFile as error:
        file = Path(path.partition(":")[0])
        if file.suffix != ".py" or "\nData:" not in file.read_text():
            raise
        raise MissingFile(f"{error}; {file} says at its top what data it reads") from None


def prepare(args: argparse.Namespace) -> int:
    from .. import recipe
    from ..data.prepare import prepare as make
    from ..data.quarantine import quarantine_notes
    from ..runs import progress
    from .prepare import data_from_arguments, parse_part, prepared_page, prepared_summary

    if args.paths[0].partition(":")[0].endswith((".py", "recipe.json")):
        data = recipe.apply_overrides(recipe.load_recipe(args.paths[0]), args.set).data
    else:
        words = (
            "kind",
            "format",
            "document_boundary",
            "tokenizer",
            "vocab_size",
            "lowercase",
            "sentence_boundaries",
            "valid",
            "column_names",
            "columns",
            "numeric_label",
            "filters",
        )
        data = data_from_arguments(args.paths, **{word: getattr(args, word) for word in words})
    data = replace(
        data, max_bad_row_fraction=max(data.max_bad_row_fraction, args.max_bad_row_fraction)
    )
    with (
        data_of_recipe(args.paths[0]),
        progress.PrepareProgressLine("looking at the sources") as preparing,
    ):
        prepared = make(
            data,
            args.output,
            shard=parse_part(args.shard),
            workers=args.workers,
            report=preparing.show,
            verify=True,
            overwrite=args.overwrite,
            on=args.on,
        )
    for line in quarantine_notes(prepared.folder):
        report(line)
    summary = prepared_summary(prepared.folder, preparing)
    print_result(args, summary, lambda width: prepared_page(summary))
    return 0


def train(args: argparse.Namespace) -> int:
    from .. import recipe
    from ..training.compatibility import recipe_of
    from ..user_code import load_code_of_run

    folder = Path(args.recipe)
    options = RunOptions(args.device, args.precision, args.log_to, args.code_changed)
    load_code_of_run(folder, options.code_changed)
    if folder.is_dir():
        saved = recipe_of(folder, lambda line: None)
    else:
        saved = recipe.load_recipe(args.recipe)
    overrides = args.set + options.overrides()
    changed = recipe.apply_overrides(saved, overrides, report_on_first_rank)
    out = folder if folder.is_dir() else None
    if args.output:
        out = Path(args.output)
    with data_of_recipe(args.recipe):
        path, exit_code = train_with_progress(changed, out, options)
    if is_first():
        report_run(path, args)
    return exit_code


def resume(args: argparse.Namespace) -> int:
    from ..user_code import load_code_of_run

    load_code_of_run(Path(args.run_folder), args.code_changed)
    if args.verify:
        return verify(args)
    options = RunOptions(args.device, args.precision, args.log_to, args.code_changed)
    path, exit_code = continue_run(Path(args.run_folder), options)
    if is_first():
        report_run(path, args)
    return exit_code


def verify(args: argparse.Namespace) -> int:
    """Train the last interval of a run again and compare."""
    if args.precision is not None:
        raise ValueError("--verify repeats the run in its own precision; leave --precision out")
    from ..runs.log import check_log
    from ..runs.progress import CountProgressLine
    from ..training.compatibility import recipe_of

    recipe = recipe_of(Path(args.run_folder), lambda line: None)  # before torch, if it is not a run
    recipe = replace(recipe, device=args.device or recipe.device)
    check_log(Path(args.run_folder), report)
    text = f"training the last interval of {args.run_folder} again"
    with CountProgressLine("trained again", "steps", text) as progress:
        from ..data.prepare import prepare_for_run
        from ..runs.verify_resume import verify_resume

        proof = verify_resume(recipe, prepare_for_run(recipe.data), args.run_folder, progress)
    plain = proof._asdict() | {"same": proof.saved_digest == proof.repeated_digest}
    message = f"steps {proof.first_step:,} to {proof.last_step:,} trained again in {proof.seconds:.0f} s: "
    message += (
        f"every bit is the same (SHA-256 {proof.saved_digest[:16]}…)"
        if plain["same"]
        else f"NOT the same: {proof.saved_digest[:16]}… was saved, {proof.repeated_digest[:16]}… came out"
    )
    print_result(args, plain, lambda width: message)
    return 0 if plain["same"] else 1


def continue_run(folder: Path, options: RunOptions) -> tuple[Path, int]:
    """Train the rest of a run, with the options that may change."""
    from ..interop.manifest import check_model_of_run
    from ..recipe import apply_overrides
    from ..runs.log import check_log, is_finished
    from ..training.compatibility import recipe_differences, recipe_of

    saved = recipe_of(folder, lambda line: None)  # the run itself says what it repairs
    recipe = apply_overrides(saved, options.overrides())
    for name, before in recipe_differences(saved, recipe):
        raise ValueError(f"{folder} was started with {name} = {before!r}, which a run keeps")
    if is_finished(folder) and not any((folder / "checkpoints").glob("step-*")):
        check_model_of_run(folder / "model")
        check_log(folder, report_on_first_rank)
        return folder, 0  # weft tune keeps the model alone
    return train_with_progress(recipe, folder, options)


def with_loggers(loggers: tuple[Logger, ...], names: list[str]) -> tuple[Logger, ...]:
    """Return the loggers of these names beside others."""
    from ..recipe import logger_named

    new = tuple(logger_named(name) for name in dict.fromkeys(names))
    kinds = {type(logger) for logger in new}
    return (*(logger for logger in loggers if type(logger) not in kinds), *new)


def is_first() -> bool:
    return int(os.environ.get("RANK", "0")) == 0


def train_with_progress(recipe: Recipe, out: Path | None, options: RunOptions) -> tuple[Path, int]:
    """Prepare the data and train, with a forecast and live progress. Returns the path of the run and the exit code."""
    with spinner("loading PyTorch"):
        from ..data.ownership import refuse_strange
        from ..runs.directory import run_directory
        from ..runs.start import prepared_for
        from ..runs.train import RunStopped
        from ..runs.train import train as steps
        from ..runs.train_progress import TrainScreen

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


def report_run(folder: Path, args: argparse.Namespace) -> None:
    """Print the status of a run and how to continue or export it."""
    from ..runs import status

    run_status = status.run_status(folder, lambda line: None)  # the run itself has said it
    print_result(args, run_status, lambda width: status.status_page(run_status))
    if not run_status["finished"]:
        report_on_first_rank(
            f"stopped; saved at step {run_status['checkpoint_step']:,}; to continue: weft resume {folder}"
            if run_status["checkpoint_step"]
            else "stopped before the first checkpoint; the next start begins at the first step"
        )
    elif command := export_hint(str(folder)):
        report_on_first_rank(command)


def status(args: argparse.Namespace) -> int:
    from ..runs import status

    folders = status.find_runs(args.run_folders or [RUNS])
    statuses = [status.run_status(folder) for folder in folders]
    if len(statuses) == 1:
        print_result(args, statuses[0], lambda width: status.status_page(statuses[0]))
    else:
        print_result(args, statuses, lambda width: status.status_table(statuses))
    return 0


def add_prepare(verb: AddCommand) -> None:
    parser = verb(
        prepare,
        "prepare data as Arrow shards",
        "The data of a recipe, or files: weft prepare a.txt.gz b.txt.gz --output shards. Run it again to resume; finished "
        "shards are verified by their SHA-256 and damaged ones are rebuilt.",
    )
    parser.add_argument(
        "paths",
        metavar="RECIPE|PATH",
        nargs="+",
        help="recipe, or files, globs and URLs, also as .gz and .zst",
    )
    add_set(parser)
    parser.add_argument(
        "-o",
        "--output",
        metavar="FOLDER",
        help="folder of the shards (default: prepared/<fingerprint>)",
    )
    parser.add_argument(
        "--overwrite",
        action="store_true",
        help="replace what the output folder holds",
    )
    parser.add_argument(
        "--shard",
        metavar="I/N",
        help="prepare only part I of N (from 0), as one of N jobs; the result is the same",
    )
    parser.add_argument(
        "--workers",
        type=positive_int,
        metavar="N",
        help="number of worker processes (default: the number of cores)",
    )
    parser.add_argument(
        "--rows",
        dest="kind",
        default="documents",
        metavar="ROW",
        help="kind of rows: documents, pairs, examples, choices, tagged, questions, images or boxed (default: documents)",
    )
    parser.add_argument(
        "--format",
        help="data format: text, parallel, jsonl, json, csv, tsv, parquet, hub, conll, squad, folder, idx, npz, coco, "
        "image_table, or one of your own (default: from the rows, the name of the file and its first lines)",
    )
    parser.add_argument(
        "--document-boundary",
        default="blank",
        choices=("file", "line", "blank", "heading"),
        help="where a document of a text file ends (default: at a blank line)",
    )
    parser.add_argument(
        "--tokenizer",
        default="byte-bpe",
        help="tokenizer to train: byte-bpe, bpe, wordpiece, unigram, bytes, characters, or a tokenizer.json (default: byte-bpe)",
    )
    parser.add_argument(
        "--vocab-size",
        type=positive_int,
        default=32_000,
        metavar="N",
        help="size of the vocabulary (default: 32000)",
    )
    parser.add_argument(
        "--lowercase", action="store_true", default=None, help="lower-case the text first"
    )
    parser.add_argument(
        "--sentence-boundaries",
        action="store_true",
        help="store where sentences start, for next-sentence prediction",
    )
    parser.add_argument(
        "--valid", nargs="+", default=[], metavar="FILE", help="validation files (default: none)"
    )
    add_column_names(parser)
    add_columns_option(parser)
    parser.add_argument("--numeric-label", action="store_true", help="the label is a number")
    parser.add_argument(
        "--filters",
        nargs="+",
        default=[],
        metavar="FILTER",
        help="filters of the training rows, in this order: length, characters, lines, repetition, forbidden, exact, near, "
        "or one of your own; a recipe sets their thresholds (default: none)",
    )
    parser.add_argument(
        "--on",
        choices=("processes", "ray"),
        default="processes",
        help="where the work is done: in processes here, or on a Ray cluster (default: processes)",
    )
    add_max_bad_rows(parser)


def add_run_options(parser: argparse.ArgumentParser, precision: str) -> None:
    """Add the options of train and resume; `precision` says what the default precision is."""
    add_device(parser, default=None)
    add_precision(parser, default=None, note=precision, choices=TRAINING_PRECISIONS)
    add_code_changed(parser)
    parser.add_argument(
        "--log-to",
        nargs="+",
        default=[],
        metavar="LOGGER",
        help="experiment trackers that also get the numbers of log.jsonl: tensorboard, wandb (offline), mlflow, trackio, or one of "
        "your own (default: the recipe's)",
    )


def add_training(verb: AddCommand) -> None:
    parser = verb(
        train,
        "train a recipe, or resume it bit for bit",
        f"Run the same command again to resume. Ctrl-C or SIGTERM saves a checkpoint and exits with code {EXIT_STOPPED}.",
    )
    parser.add_argument(
        "recipe",
        metavar="RECIPE",
        help="recipe file such as recipes/gpt_char.py or recipes/gpt_char.py:name, recipe.json, or folder of a run",
    )
    add_set(parser)
    parser.add_argument(
        "-o", "--output", metavar="RUN", help="folder of the run (default: runs/<name>)"
    )
    add_run_options(parser, "the recipe's")
    verb(status, "show the progress and metrics of runs").add_argument(
        "run_folders",
        metavar="RUN",
        nargs="*",
        help="folder of a run, or folder of runs (default: runs)",
    )
    parser = verb(resume, "resume a run; --verify proves that it resumes exactly")
    parser.add_argument("run_folder", metavar="RUN", help="folder of the run")
    add_run_options(parser, "that of the run, which it keeps")
    parser.add_argument(
        "--verify",
        action="store_true",
        help="train again from the last checkpoint but one and compare every bit",
    )


def add(verb: AddCommand) -> None:
    add_prepare(verb)
    add_training(verb)
