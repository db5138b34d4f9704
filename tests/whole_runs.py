"""A recipe's data prepared, and the recipe trained, built or verified, in one call, as the commands do."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from weft import recipe as R
from weft.data.prepare import prepare_for_run
from weft.runs import train as training
from weft.runs import verify_resume as verification
from weft.runs.run import Run
from weft.training.compatibility import recipe_of
from weft.training.parallel import DistributedRanks
from weft.training.step import TrainStep


def train(
    recipe: R.Recipe, directory: str | Path | None = None, **options: Any
) -> Iterator[TrainStep]:
    return training.train(recipe, prepare_for_run(recipe.data), directory, **options)


def build_run(recipe: R.Recipe, ranks: DistributedRanks | None = None, is_new: bool = True) -> Run:
    prepared = prepare_for_run(recipe.data)
    prepared.check(ranks or DistributedRanks(device="cpu"))
    return Run(recipe, prepared, ranks, is_new)


def verify_resume(directory: Path) -> verification.ResumeCheck:
    recipe = recipe_of(directory, lambda line: None)
    return verification.verify_resume(recipe, prepare_for_run(recipe.data), directory)
