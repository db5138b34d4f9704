"""Shared code of benchmarks with several training runs: options, and a run with progress."""

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from weft import recipe as R
from weft.data.preparing.prepare import prepare_for_run
from weft.nn.kernels.devices import resolve_device
from weft.runs import run
from weft.runs import train as training
from weft.runs.logs.progress import ProgressLine, moving_average, time_left
from weft.runs.start import decide_precision
from weft.training.parallel.ranks import DistributedRanks
from weft.training.step import TrainStep

from .generated import small


def trial_parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with --output, --quick and --receipt."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--output", type=Path, default=Path("runs"), help="folder of the runs (default: runs)"
    )
    parser.add_argument("--quick", action="store_true", help="three steps of each run")
    parser.add_argument("--receipt", metavar="FILE", help="also write the result with its receipt")
    return parser


def positive_int(text: str) -> int:
    """Return a number of the command line that is at least 1."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is less than 1")
    return value


def parse(parser: argparse.ArgumentParser, arguments: list[str] | None) -> argparse.Namespace:
    """Read the options; quick runs have a folder of their own, where no measurement would take one
    for its own.
    """
    options = parser.parse_args(arguments)
    if options.quick:
        options.output /= "quick"
    return options


def train_steps(
    recipe: R.Recipe, directory: Path | str | None = None, **options: Any
) -> Iterator[TrainStep]:
    """Prepare the data of a recipe and train it: the options are those of `weft.train`."""
    return training.train(recipe, prepare_for_run(recipe.data), directory, **options)


def build_run(recipe: R.Recipe, is_new: bool = True) -> run.Run:
    """Prepare the data of a recipe and build the run."""
    ranks = DistributedRanks(device=resolve_device(recipe.device))
    recipe = replace(recipe, precision=decide_precision(recipe.precision, ranks))
    return run.Run(recipe, prepare_for_run(recipe.data), ranks, is_new)


def train(recipe: R.Recipe, output: Path, quick: bool = False) -> Path:
    """Train a recipe, or use its finished run; return its folder."""
    recipe = small(recipe) if quick else recipe
    folder = output / recipe.name
    pace: float | None = None
    with ProgressLine() as line:
        for event in train_steps(recipe, folder):
            pace = moving_average(pace, event.seconds)
            if line.is_due:
                left = time_left(pace * (recipe.steps - event.step))
                steps = f"step {event.step:,}/{recipe.steps:,}"
                line.print(f"{recipe.name}: {steps}, loss {event.loss:.3f}{left}")
    return folder
