"""A recipe's data prepared, and the recipe trained, built or verified, in one call, as the commands
do.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from weft import recipe as R
from weft.data.preparing.prepare import prepare_for_run
from weft.nn.kernels.devices import resolve_device
from weft.runs import train as training
from weft.runs import verify_resume as verification
from weft.runs.directory import run_directory
from weft.runs.run import Run
from weft.runs.start import decide_precision, prepared_for
from weft.training.checkpoints.compatibility import recipe_of
from weft.training.parallel.ranks import DistributedRanks
from weft.training.step import TrainStep


def train(
    recipe: R.Recipe, directory: str | Path | None = None, **options: Any
) -> Iterator[TrainStep]:
    place = run_directory(directory, recipe.name)
    code_changed = options.get("code_changed", False)
    with prepared_for(recipe, place, code_changed=code_changed) as prepared:
        yield from training.train(recipe, prepared, place, **options)


def build_run(recipe: R.Recipe, ranks: DistributedRanks | None = None, is_new: bool = True) -> Run:
    ranks = (ranks or DistributedRanks(device=resolve_device(recipe.device))).arrange(
        recipe.parallel
    )
    recipe = replace(recipe, precision=decide_precision(recipe.precision, ranks))
    prepared = prepare_for_run(recipe.data)
    prepared.check(ranks)
    return Run(recipe, prepared, ranks, is_new)


def verify_resume(directory: Path) -> verification.ResumeCheck:
    recipe = recipe_of(directory, lambda line: None)
    return verification.verify_resume(directory, prepare_for_run(recipe.data))
