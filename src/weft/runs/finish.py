"""The end of a run: last validation, final weights and export of the model."""

from functools import partial

from ..support.console import Report
from ..training.averages import BestWeights
from ..training.checkpoints.parts import load_weights
from .directory import RunDirectory
from .export import export_model
from .final_weights import selected_weights
from .logs.log import RunLog
from .run import Run
from .validation import log_validation, validate_run

COMPLETE = "complete"


def is_complete(run: Run, directory: RunDirectory, report: Report) -> bool:
    """Return whether a run is complete. The first rank decides, since other ranks may have another
    disk.
    """
    if run.trainer.step != run.recipe.steps:
        return False
    result = run.trainer.ranks.from_first(partial(result_of, directory))
    if not result:
        return False
    if result != COMPLETE:
        report(f"{result}; exporting the model again from the checkpoint")
        return False
    report(
        f"{directory} is finished after {run.recipe.steps:,} steps; its model is in "
        f"{directory.model}"
    )
    if run.trainer.ranks.is_first:
        directory.check_log(report)
    return True


def result_of(directory: RunDirectory) -> str:
    """Return "complete" for a finished run, the damage of its model, or "" otherwise."""
    return (directory.damage() or COMPLETE) if directory.is_finished() else ""


def finish_run(run: Run, directory: RunDirectory, log: RunLog | None, report: Report) -> bool:
    """Validate, select the final weights and export the model; return False after a signal.

    The log is completed last, so that an interrupted call is repeated in full.
    """
    trainer = run.trainer
    plain = validate_run(run)
    best = trainer.average.best if isinstance(trainer.average, BestWeights) else None
    better = None
    weights = selected_weights(run, directory, report)
    if weights is not None:
        load_weights(run.loss, weights, strict=False)
        better = best or validate_run(run)
    if trainer.stop_requested and trainer.ranks.world == 1:
        return False
    export_model(run, directory)
    if log is not None:
        log_validation(log, "valid", trainer.step, plain)
        log_validation(log, "best" if best else "averaged", trainer.step, better)
        log.finish()
    return True
