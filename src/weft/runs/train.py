"""Training: from a recipe and its prepared data to a model in a run directory. The same call
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
    """Raised when a signal stops a run before its end. The steps so far are saved; the same call
    resumes the run.
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
    """Train a recipe, or resume its run.

    Yields each step, saves checkpoints, and writes the model to `<directory>/model` after the last
    step. The caller may stop at any step, also by ending the program; the last step is saved.

    Args:
        recipe: the recipe to train, including its device.
        prepared: the prepared data of the recipe: `weft.prepare(recipe.data)`.
        directory: the run directory (default: runs/<name>).
        report: called with each line of output (default: print to stderr on the first rank).
        validation_progress: called during validation with the number of finished samples and the
            total (default: not called).
        on_start: called before the first step with the run, the seconds of one step and its tokens
            (default: not called).
        code_changed: resume although a file of user code has changed since the run began
            (default: False).

    Yields:
        One `TrainStep` per step.

    Raises:
        ValueError: at the call, for invalid arguments or data of another recipe.
        RunStopped: after Ctrl-C or SIGTERM, once the current step is done and saved. The signal
            handlers of the caller are restored by then.
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
    """Yield the steps of a run; `train` describes the arguments."""
    if warning := warmup_warning(recipe.schedule, recipe.steps):
        report(warning)
    with ExitStack() as stack:
        # Join the other ranks. Copies are entered first, since ranks do not wait for each other's.
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
            # Nothing is unsaved yet, so a signal may end the process at once
            on_start(run, *run.trainer.time_one_step())
        stack.enter_context(stop_on_signal(run.trainer))
        yield from train_and_save(run, saver, log)

        # Finish
        step = run.trainer.step
        finished = step == recipe.steps and finish_run(run, place, log, report)
    if not finished:  # raised after everything is saved and closed
        raise RunStopped(f"stopped after step {step:,} of {recipe.steps:,}; run it again to resume")


def open_log(run: Run, directory: RunDirectory, report: Report) -> RunLog:
    recipe = run.recipe
    trainer = run.trainer
    start = LogStart(directory.path, trainer.step, run.config())
    trackers = LogWriters(start, recipe.loggers, report)
    labels = LogLabels(sample_unit(recipe.model), recipe.task.loss_unit, recipe.metric)
    validated = trainer.last_validated_step
    return RunLog(directory.path, trainer.step, validated, labels, trackers, report)


# Training loop


def train_and_save(run: Run, saver: RunSaver, log: RunLog | None) -> Iterator[TrainStep]:
    """Log each step, validate and save where due, and yield the step."""
    recipe = run.recipe
    if validation_pending(run):
        log_validation(log, "valid", run.trainer.step, validate_run(run))
    pause = None  # seconds that training waited for the last save
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
        except GeneratorExit:  # the caller stops the iteration
            saver.save_latest()
            raise
    saver.save_on_all_ranks()
