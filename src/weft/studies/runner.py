"""The runner of a study: all runs, in rounds, resumed where they stopped."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

from ..runs.directory import RunDirectory
from ..runs.start import ignore_message
from ..runs.train import RunStopped
from ..support.storage import make_folder
from .launchers import Launcher, RunEvent
from .runs import StudyRun, check_begun, is_done


def run_all(
    study: RunDirectory, rounds: Iterable[Sequence[StudyRun]], launcher: Launcher
) -> Iterator[RunEvent]:
    """Run the unfinished runs of each round.

    The next round is requested when all runs of one have ended, so that a generator can select runs
    by the results: none, further seeds of the best arm, or the survivors. The same call resumes a
    stopped or killed study and repeats its failed runs.

    Args:
        study: the folder of the study, locked until the end; each run has its directory in it.
        rounds: the runs, in one round per decision.
        launcher: starts the runs.

    Yields:
        The events of the launcher. Final events come in the order of the runs, including runs that
        were done before, so that a result does not depend on the speed of a run.

    Raises:
        RunStopped: if a run was stopped, so that its result is missing for a decision.
    """
    with study.lock():
        for runs in rounds:
            done = [RunEvent(run, "done") for run in runs if is_done(run)]
            finished = {event.run.directory for event in done}
            rest = [run for run in runs if run.directory not in finished]
            for run in rest:
                check_begun(run)
            for run in rest:
                # From here on, readers of the directory see the state "waiting"
                make_folder(run.directory)
                RunDirectory(run.directory).store(run.recipe, ignore_message)
            with closing(launcher.launch(rest)) as events:
                yield from ends_in_order(runs, done, events)


def ends_in_order(
    runs: Sequence[StudyRun], done: Iterable[RunEvent], events: Iterable[RunEvent]
) -> Iterator[RunEvent]:
    """Yield events, each final event after those of all preceding runs."""
    ends = {event.run.directory: event for event in done}
    left = list(runs)
    yield from pop_ended(left, ends)
    for event in events:
        if event.state == "running":
            yield event
        else:
            ends[event.run.directory] = event
            yield from pop_ended(left, ends)


def pop_ended(left: list[StudyRun], ends: dict[Path, RunEvent]) -> Iterator[RunEvent]:
    while left and left[0].directory in ends:
        event = ends[left.pop(0).directory]
        if event.state == "waiting":
            raise RunStopped(f"{event.run.directory} is stopped and saved; run it again to resume")
        yield event
