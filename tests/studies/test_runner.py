"""The runner of a study: continued wherever it was killed, states on disk, at most N at a time, the
same results at any N.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from weft.runs.directory import RunDirectory
from weft.runs.lock import RunLock, is_locked
from weft.runs.train import RunStopped
from weft.studies import launchers
from weft.studies.launchers import Processes, ThisProcess
from weft.studies.runner import run_all
from weft.studies.runs import RunState, StudyRun, record_failure, run_state, study_states

from .runs import STEPS, failing, killed, run_study, small_runs, weights, with_steps

NAMES = ["rate-0.001", "rate-0.002", "rate-0.003"]
ENDS = [(name, "done") for name in NAMES]
READ_STATES = (
    "import sys; from pathlib import Path; from weft.studies.runs import study_states\n"
    "print([tuple(one) for one in study_states(Path(sys.argv[1]))])"
)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The models of a study that nothing happened to."""
    folder: Path = tmp_path_factory.mktemp("whole") / "study"
    assert run_study(folder, [small_runs(folder)]) == ENDS
    return weights(folder)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def killed_at(folder: Path, event_number: int) -> None:
    """Run a study in a process that is killed at an event."""

    def work() -> None:
        events = run_all(RunDirectory(folder), [small_runs(folder)], ThisProcess(lambda line: None))
        for number, _ in enumerate(events, 1):
            if number == event_number:
                die()

    assert killed(work) == -signal.SIGKILL


@pytest.mark.parametrize("event_number", [3, STEPS + 1, STEPS + 4, 2 * STEPS + 3])
def test_a_study_that_was_killed_ends_as_if_it_was_not(
    event_number: int, expected: dict[str, str], tmp_path: Path
) -> None:
    """In a run, between two runs (each has one event per step and one at its end), and twice."""
    folder = tmp_path / "study"
    killed_at(folder, event_number)
    assert "running" not in [one.state for one in study_states(folder)]
    killed_at(folder, 2)
    assert run_study(folder, [small_runs(folder)]) == ENDS
    assert weights(folder) == expected


def test_what_is_done_is_not_run_again(tmp_path: Path) -> None:
    folder = tmp_path / "study"
    runs = small_runs(folder)
    run_study(folder, [runs[:2]])
    before = {path: path.stat().st_mtime_ns for path in folder.glob("rate-*/**/*")}
    assert run_study(folder, [runs[:2]]) == ENDS[:2]
    assert {path: path.stat().st_mtime_ns for path in folder.glob("rate-*/**/*")} == before


def test_a_generator_decides_the_next_round_by_the_results_of_the_last(tmp_path: Path) -> None:
    folder = tmp_path / "study"
    runs = small_runs(folder)

    def rounds() -> Iterator[list[StudyRun]]:
        yield runs[:1]
        assert run_state(runs[0].directory).state == "done"
        assert not runs[1].directory.exists()
        yield []
        yield runs[1:2]

    assert run_study(folder, rounds()) == ENDS[:2]


def test_states_are_read_from_the_directories_by_another_process(tmp_path: Path) -> None:
    folder = tmp_path / "study"
    runs = small_runs(folder)
    run_study(folder, [runs[:1]])
    events = run_all(RunDirectory(folder), [runs], ThisProcess(lambda line: None))
    while next(events).state != "running":
        pass
    record_failure(runs[2].directory, "ValueError: too hot")
    shown = subprocess.run(
        [sys.executable, "-c", READ_STATES, str(folder)], check=True, capture_output=True, text=True
    ).stdout
    events.close()  # type: ignore[attr-defined]
    assert shown.strip() == str(
        [
            (NAMES[0], "done", ""),
            (NAMES[1], "running", ""),
            (NAMES[2], "failed", "ValueError: too hot"),
        ]
    )
    assert run_state(runs[1].directory) == RunState(NAMES[1], "waiting")
    assert run_study(folder, [runs]) == ENDS
    assert {one.state for one in study_states(folder)} == {"done"}


def test_two_runners_of_one_study_are_refused_in_one_line(tmp_path: Path) -> None:
    folder = tmp_path / "study"
    with RunLock(folder), pytest.raises(ValueError, match=r"is being trained by process \d+"):
        run_study(folder, [small_runs(folder)])
    assert not study_states(folder)


def test_a_run_of_another_recipe_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    folder = tmp_path / "study"
    runs = small_runs(folder)
    run_study(folder, [runs[1:2]])
    recipe = (runs[1].directory / "recipe.json").read_bytes()
    longer = [with_steps(run, STEPS + 1) for run in runs]
    with pytest.raises(ValueError, match=f"started with another recipe: steps was {STEPS}"):
        run_study(folder, [longer])
    assert (runs[1].directory / "recipe.json").read_bytes() == recipe
    assert not runs[0].directory.exists()


def test_an_error_in_this_process_is_recorded_and_raised_and_the_run_is_tried_again(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "study"
    runs = small_runs(folder)[:1]
    with pytest.raises(ValueError, match="is not prepared yet"):
        run_study(folder, [[failing(run) for run in runs]])
    state = run_state(runs[0].directory)
    assert state.state == "failed"
    assert state.line.startswith("ValueError: ")
    assert run_study(folder, [runs]) == ENDS[:1]
    assert run_state(runs[0].directory) == RunState(NAMES[0], "done")


# Processes


@pytest.mark.slow
@pytest.mark.parametrize("at_most", [1, 2])
def test_processes_give_the_same_results_at_most_so_many_at_a_time(
    at_most: int, expected: dict[str, str], tmp_path: Path
) -> None:
    folder = tmp_path / "study"
    runs = small_runs(folder)
    running = set[str]()
    most = 0
    ends = list[tuple[str, str]]()
    for event in run_all(RunDirectory(folder), [runs], Processes(at_most)):
        name = event.run.directory.name
        if event.state == "running":
            running.add(name)
            unfinished = [one for one in running if run_state(folder / one).state != "done"]
            most = max(most, len(unfinished))
        else:
            ends.append((name, event.state))
    assert ends == ENDS
    assert most == at_most
    assert weights(folder) == expected


def test_a_failing_run_is_recorded_with_its_last_line_and_the_others_continue(
    expected: dict[str, str], tmp_path: Path
) -> None:
    folder = tmp_path / "study"
    runs = small_runs(folder)
    broken = [failing(runs[0]), *runs[1:]]
    assert run_study(folder, [broken], Processes(2)) == [(NAMES[0], "failed"), *ENDS[1:]]
    failed, *others = study_states(folder)
    assert failed.state == "failed"
    assert "is not prepared yet" in failed.line
    assert [one.state for one in others] == ["done", "done"]
    assert "Traceback" in (runs[0].directory / launchers.OUTPUT_FILE).read_text()
    assert run_study(folder, [runs], Processes(1)) == ENDS
    assert weights(folder) == expected


def has_steps(run: StudyRun) -> bool:
    log = run.directory / "log.jsonl"
    return log.exists() and log.stat().st_size > 0


def wait_for(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_processes_end_with_a_killed_runner_and_the_study_continues(tmp_path: Path) -> None:
    folder = tmp_path / "study"
    long = [with_steps(run, 2000) for run in small_runs(folder)[:2]]
    pid = os.fork()
    if pid == 0:
        run_study(folder, [long], Processes(2))
        os._exit(1)
    wait_for(lambda: all(list(run.directory.glob("checkpoints/step-*")) for run in long))
    assert [one.state for one in study_states(folder)] == ["running", "running"]
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    wait_for(lambda: not any(is_locked(run.directory) for run in long), 30)
    assert [one.state for one in study_states(folder)] == ["waiting", "waiting"]


def test_a_signal_stops_all_processes_once_they_are_saved(tmp_path: Path) -> None:
    folder = tmp_path / "study"
    long = [with_steps(run, 2000) for run in small_runs(folder)]
    events = run_all(RunDirectory(folder), [long], Processes(2))
    assert [next(events).run for _ in range(2)] == long[:2]
    wait_for(lambda: all(has_steps(run) for run in long[:2]))
    os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(RunStopped, match=f"{folder}/.*; run it again"):
        next(events)
    states = [(one.name, one.state) for one in study_states(folder)]
    assert states == [(name, "waiting") for name in NAMES]
    assert all(list(run.directory.glob("checkpoints/step-*")) for run in long[:2])
    assert not (long[2].directory / "log.jsonl").exists()


def test_a_run_that_is_killed_from_outside_is_recorded_by_its_signal(tmp_path: Path) -> None:
    folder = tmp_path / "study"
    long = [with_steps(small_runs(folder)[0], 2000)]
    events = run_all(RunDirectory(folder), [long], Processes(1))
    assert next(events).state == "running"
    wait_for(lambda: has_steps(long[0]))
    os.kill(json.loads((long[0].directory / "lock").read_text())["pid"], signal.SIGKILL)
    assert [event.state for event in events] == ["failed"]
    assert run_state(long[0].directory).line == "ended by signal 9 (Killed)"


def test_a_number_of_processes_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="at_most = 0: give 1 or more"):
        Processes(0)
