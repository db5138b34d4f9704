"""The start of a run: its processes, and the checks before its first step."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from importlib.util import find_spec
from typing import Literal

from .. import recipe as R
from ..data.preparing.prepare import prepare_for_run
from ..data.preparing.prepared import PreparedData
from ..data.preparing.task_runner import ReportProgress
from ..nn.kernels.devices import has_fast_bf16, resolve_device
from ..plan.cost import check_memory, estimate_memory
from ..support.console import Report
from ..support.extras import install_extra
from ..support.ranks import started_processes
from ..support.user_code import load_code_of_run
from ..training.checkpoints.compatibility import refuse_other, saved_recipe
from ..training.checkpoints.facts import CheckpointFacts
from ..training.environment import configured_environment, restored_random_state
from ..training.memory import available_bytes, keep_large_allocations
from ..training.parallel.ranks import DistributedRanks, init_ranks
from .directory import RunDirectory

Precision = Literal["auto", "fp32", "bf16"]


def ignore_message(_: str) -> None:
    """Discard a progress line."""


@contextmanager
def joined_ranks(
    timeouts: R.Timeouts,
    device: str,
    parallel: R.Parallel,
    threads: int | None,
    deterministic: bool,
) -> Iterator[DistributedRanks]:
    """Join the processes of a run within the block, in the environment that its recipe requires.
    The arguments are fields of the recipe.
    """
    with ExitStack() as stack:
        stack.enter_context(keep_large_allocations())
        stack.enter_context(configured_environment(threads, deterministic))
        ranks = stack.enter_context(init_ranks(timeouts, device, parallel))
        stack.enter_context(restored_random_state(ranks.device))
        yield ranks


@contextmanager
def prepared_for(
    recipe: R.Recipe,
    directory: RunDirectory,
    report: ReportProgress | None = None,
    code_changed: bool = False,
) -> Iterator[PreparedData]:
    """Prepare the data of a run with its directory locked, after all other checks.

    Args:
        recipe: the recipe of the run.
        directory: the run directory, locked within the block.
        report: called with progress lines.
        code_changed: see `weft.train`.
    """
    with ExitStack() as stack:
        if started_processes() == 1:
            device = resolve_device(recipe.device)  # checked before any write
            stack.enter_context(directory.lock())
            check_metric_packages(recipe.task, recipe.metric, recipe.data)
            directory.check_model()
            ranks = DistributedRanks(device=device)
            check_start(recipe, directory, directory.newest_facts(), ranks, code_changed)
        yield prepare_for_run(recipe.data, report)


def check_start(
    recipe: R.Recipe,
    directory: RunDirectory,
    checkpoint: CheckpointFacts | None,
    ranks: DistributedRanks,
    code_changed: bool,
    report: Report = ignore_message,
) -> R.Recipe:
    """Return the recipe with the run's precision; raise ValueError if the run cannot start.

    Args:
        recipe: the recipe of the run.
        directory: the run directory.
        checkpoint: the checkpoint to resume from, if any.
        ranks: the ranks that train the run.
        code_changed: see `weft.train`.
        report: called with a line if the checkpoint's precision is kept.
    """
    precision = decide_precision(recipe.precision, ranks, checkpoint, report)
    recipe = replace(recipe, precision=precision)
    here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    need = estimate_memory(recipe, ranks.size, ranks.weight_parts)
    check_memory(recipe.name, recipe.batch.size_field, need, available_bytes(ranks.device, here))
    if checkpoint is not None:
        load_code_of_run(directory.path, code_changed)
        refuse_other(checkpoint, recipe)
    return recipe


def check_arguments(recipe: object, prepared: object) -> None:
    """Raise ValueError for arguments of a wrong type, such as a file name, or for data of another
    recipe.
    """
    if not isinstance(recipe, R.Recipe):
        raise ValueError(f'train takes a recipe: weft.load_recipe("FILE"), not {recipe!r}'[:200])
    if not isinstance(prepared, PreparedData):
        raise ValueError(
            f"train takes prepared data: weft.prepare(recipe.data), not {prepared!r}"[:200]
        )
    check_metric_packages(recipe.task, recipe.metric, recipe.data)
    prepared.check_data(recipe.data)


def check_metric_packages(task: R.Task, metric: str | None, data: R.Data) -> None:
    """Raise ValueError before the first step if a metric of validation needs a missing package."""
    if not metric or data.valid is None:
        return
    for package, extra in task.metric_packages.items():
        if find_spec(package) is None:
            raise ValueError(
                f"validation of {type(task).__name__} needs {package}; {install_extra(extra)}, or "
                "remove data.valid"
            )


def decide_precision(
    precision: Precision,
    ranks: DistributedRanks,
    checkpoint: CheckpointFacts | None = None,
    report: Report = ignore_message,
) -> Precision:
    """Return a precision; for "auto", that of the checkpoint, else bf16 if every rank's device
    computes it fast.
    """
    if precision != "auto":
        return precision
    fast_ranks = ranks.sum([float(has_fast_bf16(ranks.device))])[0]
    here: Precision = "bf16" if fast_ranks == ranks.size else "fp32"
    if checkpoint is None:
        return here
    kept = saved_recipe(checkpoint).precision
    if kept != here:
        report(f"precision stays {kept}, as the run began; auto on this machine is {here}")
    return kept
