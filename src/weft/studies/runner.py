"""The runner of a study: all its runs, round by round, continued wherever they were stopped."""

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
    """Run what is not done yet of each round. The next round is asked for when all runs of one have
    ended, so that a generator decides by their results which runs follow: none, further seeds of
    the best arm, or those that survive. The same call again continues a study that was stopped or
    killed, and tries its failed runs again.

    Args:
        study: folder of the study, locked until the end; each run has its own directory in it.
        rounds: the runs, in as many rounds as there are decisions.
        launcher: what starts them.

    Yields:
        The events of the launcher. Those of ends come in the order of the runs, also of runs that
        were done already, so that a result does not depend on which run is faster.

    Raises:
        RunStopped: if a run was stopped, whose result is missing for a decision.
    """
    with study.lock():
        for runs in rounds:
            done = [RunEvent(run, "done") for run in runs if is_done(run)]
            finished = {event.run.directory for event in done}
            rest = [run for run in runs if run.directory not in finished]
            for run in rest:
                check_begun(run)
            for run in rest:
                # From now on whoever reads the directories sees that it waits
                make_folder(run.directory)
                RunDirectory(run.directory).store(run.recipe, ignore_message)
            with closing(launcher.launch(rest)) as events:
                yield from ends_in_order(runs, done, events)


def ends_in_order(
    runs: Sequence[StudyRun], done: Iterable[RunEvent], events: Iterable[RunEvent]
) -> Iterator[RunEvent]:
    """Yield events, each end after the ends of all runs before it."""
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
            raise RunStopped(
                f"{event.run.directory} is stopped and saved; run it again to continue"
            )
        yield event
