"""Launchers start the runs of a study and wait for them, in this process or in child processes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from ..runs.train import RunStopped, train
from ..training.machine import available_cores
from ..training.signals import stop_on_signal
from ..training.step import TrainStep
from ..training.validation import Progress, ignore_progress
from .runs import State, StudyRun, forget_failure, last_line, record_failure

OUTPUT_FILE = "output.txt"  # output of a child process
POLL_SECONDS = 0.1


class RunEvent(NamedTuple):
    """A change of state of a run.

    Attributes:
        run: the run of the study.
        state: "running" at its start and at each step; at its end "done", "failed", or "waiting" if
            it was stopped and saved.
        step: the completed step, if the launcher observes steps.
        line: the last line of output of a failed run.
    """

    run: StudyRun
    state: State
    step: TrainStep | None = None
    line: str = ""


class Launcher(Protocol):
    """Starts runs, several at a time if allowed, and waits until all have ended. A launcher for
    Slurm arrays or Ray is another class with this method; a run needs only its directory with
    recipe.json and its prepared data.
    """

    def launch(self, runs: Sequence[StudyRun]) -> Generator[RunEvent, None, None]:
        """Yield an event at each start or step, and at the end of each run. Failures are recorded
        with `record_failure`. Closing the iterator stops all runs, which save their last step.
        """
        ...


@dataclass(frozen=True)
class ThisProcess:
    """Runs one after another in this process, with an event per step. An error is recorded and ends
    the study.

    Args:
        report: called with each line of a run.
        validation_progress: called while a run validates.
    """

    report: Callable[[str], None]
    validation_progress: Progress = ignore_progress

    def launch(self, runs: Sequence[StudyRun]) -> Generator[RunEvent, None, None]:
        for run in runs:
            forget_failure(run.directory)
            steps = train(
                run.recipe,
                run.prepared,
                run.directory,
                report=self.report,
                validation_progress=self.validation_progress,
            )
            try:
                with closing(steps):
                    for step in steps:
                        yield RunEvent(run, "running", step)
            except RunStopped:
                raise
            except Exception as error:
                record_failure(run.directory, f"{type(error).__name__}: {error}")
                raise
            yield RunEvent(run, "done")


@dataclass(frozen=True)
class Processes:
    """Each run in a child process on this machine. A failed run is recorded with its last line of
    output, and the others continue.

    Args:
        at_most: the maximum number of concurrent runs. Each uses `recipe.threads` threads, by
            default its share of the cores.
    """

    at_most: int

    def __post_init__(self) -> None:
        if self.at_most < 1:
            raise ValueError(f"at_most = {self.at_most}: give 1 or more")

    @property
    def threads(self) -> int:
        """The number of threads per run: its share of the cores."""
        return max(1, available_cores() // self.at_most)

    def launch(self, runs: Sequence[StudyRun]) -> Generator[RunEvent, None, None]:
        waiting = list(runs)
        running = list[RunProcess]()
        stop = StopRequest()
        try:
            with stop_on_signal(stop):
                while running or (waiting and not stop.stop_requested):
                    while waiting and len(running) < self.at_most and not stop.stop_requested:
                        running.append(RunProcess(waiting.pop(0), self.threads))
                        yield RunEvent(running[-1].run, "running")
                    time.sleep(POLL_SECONDS)
                    if stop.stop_requested:
                        terminate(running)
                    for process in [process for process in running if process.has_ended()]:
                        running.remove(process)
                        yield process.end()
        finally:
            terminate(running)
            for process in running:
                process.wait()
        if stop.stop_requested:
            raise RunStopped("stopped and saved; run it again to resume")


def launcher_for(
    at_a_time: int, report: Callable[[str], None], validation_progress: Progress = ignore_progress
) -> Launcher:
    """Return a launcher: in this process for one run at a time, else with child processes."""
    return Processes(at_a_time) if at_a_time > 1 else ThisProcess(report, validation_progress)


class StopRequest:
    """A flag that a signal sets."""

    stop_requested = False


class RunProcess:
    """A run in a child process, with its output in a file of the run directory. The process leads a
    new session: Ctrl-C reaches it once, through this process.

    Args:
        run: the run of the study, with its recipe.json written.
        threads: the number of threads, unless the recipe or the environment sets another number.
    """

    def __init__(self, run: StudyRun, threads: int) -> None:
        self.run = run
        self.output = run.directory / OUTPUT_FILE
        self.is_terminated = False
        forget_failure(run.directory)
        arguments = (run.directory, run.prepared.folder, os.getpid())
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", f"{__package__}.process", *map(str, arguments)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={"OMP_NUM_THREADS": str(threads), **os.environ},
                start_new_session=True,
            )

    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def terminate(self) -> None:
        """Request once that the run saves its step and stops."""
        if not self.is_terminated:
            self.is_terminated = True
            self.process.terminate()

    def wait(self) -> None:
        self.process.wait()

    def end(self) -> RunEvent:
        """Return the final event, and record a failure."""
        code = self.process.wait()
        if code == 0:
            return RunEvent(self.run, "done")
        if self.is_terminated or code == os.EX_TEMPFAIL:
            return RunEvent(self.run, "waiting")
        line = last_line(self.output) or f"exit code {code}"
        if code < 0:
            line = f"ended by signal {-code} ({signal.strsignal(-code)})"
        record_failure(self.run.directory, line)
        return RunEvent(self.run, "failed", line=line)


def terminate(running: Sequence[RunProcess]) -> None:
    for process in running:
        process.terminate()
