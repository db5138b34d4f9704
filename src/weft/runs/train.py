"""Training from a recipe and its prepared data to a model in a run directory. The same call again
resumes the run.
"""

from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path

from .. import recipe as R
from ..data.preparing.prepared import PreparedData
from ..recipe.recipe import sample_unit, warmup_warning
from ..support.console import Report, report_on_first_rank
from ..training.interpreter_exit import close_at_exit
from ..training.signals import stop_on_signal
from ..training.step import TrainStep
from ..training.validation import Progress, ignore_progress
from .checkpoints import RunSaver, find_checkpoint, open_copies, open_writer, restore_run
from .directory import RunDirectory, run_directory
from .finish import finish_run, is_complete
from .logs.log import LogLabels, RunLog
from .logs.loggers import LogStart, LogWriters
from .run import Run
from .start import check_arguments, check_start, ignore_message, joined_ranks
from .validation import log_validation, validate_run, validation_pending

OnStart = Callable[[Run, float, int], None]


class RunStopped(Exception):
    """A signal stopped a run before its end; the steps so far are saved, and running it again
    continues it.
    """


@close_at_exit
def train(
    recipe: R.Recipe,
    prepared: PreparedData,
    directory: str | Path | RunDirectory | None = None,
    *,
    report: Report = report_on_first_rank,
    validation_progress: Progress = ignore_progress,
    on_start: OnStart | None = None,
    code_changed: bool = False,
) -> Generator[TrainStep, None, None]:
    """Train a recipe, or resume it: yield its steps, save checkpoints, and write the model to
    `<directory>/model` after the last step. A caller may stop at any step, also by the end of the
    program: the last step is saved.

    Args:
        recipe: what to train, and on which device.
        prepared: the data of the recipe, as `weft.prepare(recipe.data)` returns them.
        directory: of the run (default: runs/<name>).
        report: takes each line about what happens (default: stderr, on the first rank).
        validation_progress: called while the run validates, with the number of samples that are
            done and of all.
        on_start: called before the first step with the run, the seconds of one step and its tokens.
        code_changed: continue although a file of the user's own parts has changed since the run
            began.

    Raises:
        ValueError: at the call, for arguments that do not fit together.
        RunStopped: after Ctrl-C or SIGTERM, once the step at hand is done and saved. The handlers
            of both signals are those of the caller again by then.
    """
    check_arguments(recipe, prepared)
    place = run_directory(directory, recipe.name)
    return run_steps(recipe, prepared, place, report, validation_progress, on_start, code_changed)


def run_steps(
    recipe: R.Recipe,
    prepared: PreparedData,
    place: RunDirectory,
    report: Report,
    validation_progress: Progress,
    on_start: OnStart | None,
    code_changed: bool,
) -> Generator[TrainStep, None, None]:
    """Yield the steps of a run; the arguments are those of `train`."""
    if warning := warmup_warning(recipe.schedule, recipe.steps):
        report(warning)
    with ExitStack() as stack:
        # Join the other ranks. Copies are entered first: ranks do not wait for each other's.
        saved = recipe.checkpoints
        copies = open_copies(saved.copy_to, saved.keep, recipe.averaged_steps(), place, report)
        if copies is not None:
            stack.enter_context(copies)
        group = joined_ranks(
            recipe.timeouts, recipe.device, recipe.parallel, recipe.threads, recipe.deterministic
        )
        ranks = stack.enter_context(group)

        # Open the directory
        if ranks.is_first:
            stack.enter_context(place.training())
            stack.enter_context(place.lock())
            place.check_model()
        checkpoint = find_checkpoint(place, copies, ranks, report)
        recipe = check_start(recipe, place, checkpoint, ranks, code_changed, report)
        if ranks.is_first:
            place.store(recipe, ignore_message if checkpoint is None else report)

        # Build and restore
        prepared.check(ranks)
        run = Run(recipe, prepared, ranks, is_new=checkpoint is None)
        run.validation_progress = validation_progress
        stack.callback(run.trainer.drop_ddp)
        for note in run.notes():
            report(note)
        if checkpoint is not None:
            restore_run(run, checkpoint, place, report)
        ranks.barrier()
        if is_complete(run, place, report):
            return

        # Train
        saver = stack.enter_context(RunSaver(run, open_writer(place, run, copies, checkpoint)))
        log = open_log(run, place, report) if ranks.is_first else None
        if log is not None:
            stack.enter_context(log)
        if on_start is not None:
            # Nothing can be lost yet, so a signal ends it at once
            on_start(run, *run.trainer.time_one_step())
        stack.enter_context(stop_on_signal(run.trainer))
        yield from train_and_save(run, saver, log)

        # Finish
        step = run.trainer.step
        finished = step == recipe.steps and finish_run(run, place, log, report)
    if not finished:  # raised once everything is saved, closed and restored
        raise RunStopped(
            f"stopped after step {step:,} of {recipe.steps:,}; run it again to continue"
        )


def open_log(run: Run, directory: RunDirectory, report: Report) -> RunLog:
    recipe = run.recipe
    trainer = run.trainer
    start = LogStart(directory.path, trainer.step, run.config())
    trackers = LogWriters(start, recipe.loggers, report)
    labels = LogLabels(sample_unit(recipe.model), recipe.task.loss_unit, recipe.metric)
    validated = trainer.last_validated_step
    return RunLog(directory.path, trainer.step, validated, labels, trackers, report)


# The loop


def train_and_save(run: Run, saver: RunSaver, log: RunLog | None) -> Iterator[TrainStep]:
    """Log each step, validate and save where due, then yield it."""
    recipe = run.recipe
    if validation_pending(run):
        log_validation(log, "valid", run.trainer.step, validate_run(run))
    pause = None  # seconds for which the last save held up training
    for event in run.trainer:
        if log is not None:
            log.step(event, pause)
        pause = None
        if recipe.validates_at(event.step):
            validation = validate_run(run)
            log_validation(log, "valid", event.step, validation)
            event = event._replace(validation=validation)
        if saver.writes and event.step % recipe.checkpoints.every_steps == 0:
            if log is not None:
                log.sync()
            pause = saver.save()
        try:
            yield event
        except GeneratorExit:  # the caller has seen enough
            saver.save_latest()
            raise
    saver.save_on_all_ranks()
