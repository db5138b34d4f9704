"""After SIGTERM, once or twice and in any phase, a run exits within seconds with exit code 75 and
loses no progress.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from weft import cli, commands
from weft import recipe as R
from weft.data.batches import loader
from weft.data.batches.loader import Loader
from weft.data.preparing import prepare
from weft.runs import directory, finish, run, validation
from weft.runs import train as train_script
from weft.runs.logs import log
from weft.runs.logs.log import is_finished
from weft.training.checkpoints import checkpoint
from weft.training.checkpoints.checkpoint import latest_checkpoint
from weft.training.loop import Trainer

from .runs import STEPS, Whole, child, fork, patience, steps_of, told, wait, whole

__all__ = ["whole"]
LIMIT = 10.0  # seconds
# what is called first in each
PHASES: dict[str, tuple[Any, str]] = {
    "import": (R, "apply_overrides"),
    "prepare": (prepare, "prepare"),
    "build": (run, "build_task"),
    "restore": (directory, "latest_checkpoint"),
    "probe": (Trainer, "time_one_step"),
    "step": (Trainer, "backward"),
    "update": (Trainer, "train_step"),
    "validation": (validation, "validate"),
    "save": (checkpoint, "_put"),
    "finish": (train_script, "finish_run"),
    "export": (finish, "export_model"),
    "end": (log.RunLog, "finish"),
}


FAILS = """
import sys
from pathlib import Path

from tests import whole_runs
from weft import recipe
from weft.training.loop import Trainer


def fail(*given):
    raise RuntimeError("a step fails")


Trainer.train_step = fail
list(whole_runs.train(recipe.load_recipe(sys.argv[1]), Path(sys.argv[2])))
"""


def twice(gap: float = 0.0) -> None:
    for _ in range(2):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(gap)


def at(phase: str, turn: int, gap: float) -> None:
    """Two signals the `turn`-th time that a phase begins."""
    owner, name = PHASES[phase]
    inner = getattr(owner, name)
    count = [0]

    def outer(*given: Any, **more: Any) -> Any:
        count[0] += 1
        if count[0] == turn:
            twice(gap)
        return inner(*given, **more)

    setattr(owner, name, outer)


def command(
    recipe: R.Recipe, out: Path, plot: Callable[[], None] | None = None
) -> tuple[int, str, float]:
    """The command `weft train` in a child: its exit code, what it said, when it began."""
    file = out.with_suffix(".recipe.json")
    note = out.with_suffix(".json")
    file.write_text(recipe.to_json())

    def work() -> None:
        sys.argv = ["weft", "train", str(file), "--output", str(out)]
        if plot:
            plot()
        raise SystemExit(cli.main())

    began = time.monotonic()
    code = wait(fork(work, note))
    return code, note.with_suffix(".out").read_text(), began


def goes_on(name: str, whole: Whole, out: Path) -> None:
    """The next start ends as if nothing had happened: a validation that was broken off is made up
    for.
    """
    whole.same(name, child(whole.recipes[name], out), out)
    assert is_finished(out)
    assert steps_of(out) == list(range(1, STEPS + 1))


@pytest.mark.parametrize("phase", PHASES)
def test_two_signals_in_any_phase_exit_soon_with_75_and_lose_nothing(
    phase: str, whole: Whole, tmp_path: Path
) -> None:
    name = "causal"
    out = tmp_path / "run"
    draw = random.Random(phase)
    recipe = whole.recipes[name]
    turn = draw.randint(2, 4) if phase in ("save", "validation") else 1
    if phase in ("step", "update"):
        turn = draw.randint(6, 20)
    code, said, began = command(recipe, out, lambda: at(phase, turn, draw.choice([0.0, 0.01])))
    assert time.monotonic() - began < patience(whole[name][3] + LIMIT)
    assert code in (commands.EXIT_STOPPED, 0 if is_finished(out) else commands.EXIT_STOPPED), said
    assert "Traceback" not in said
    if phase not in ("finish", "export", "end"):
        assert code == commands.EXIT_STOPPED, said
        assert "stopped" in said
    taken = steps_of(out) if out.exists() else []
    if taken:
        saved = latest_checkpoint(out / "checkpoints", pytest.fail)
        assert saved.step == taken[-1]  # all that was done
    else:
        assert phase in ("import", "prepare", "build", "restore", "probe", "update")
    goes_on(name, whole, out)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("name", ["causal", "detection"])
def test_a_signal_to_every_process_of_a_run_saves_its_last_step(
    name: str, number: signal.Signals, whole: Whole, tmp_path: Path
) -> None:
    """As schedulers and Ctrl-C end a job: workers that the signal killed would end the run with an
    error, and with it the steps since a checkpoint.
    """
    recipe = replace(whole.recipes[name], workers=2)
    out = tmp_path / "run"

    def signal_all() -> None:
        os.setpgrp()
        backward = Trainer.backward
        count = [0]

        def outer(*given: Any, **more: Any) -> Any:
            count[0] += 1
            if count[0] == 7:
                kill = f"import os; os.killpg({os.getpgrp()}, {number})"
                subprocess.run([sys.executable, "-c", kill], start_new_session=True, check=True)
                time.sleep(0.5)
            return backward(*given, **more)

        Trainer.backward = outer  # type: ignore[method-assign]

    code, said, _ = command(recipe, out, signal_all)
    assert code == commands.EXIT_STOPPED, said
    saved = latest_checkpoint(out / "checkpoints", pytest.fail)
    assert saved.step == steps_of(out)[-1]


def test_a_signal_while_workers_start_stops_the_run(whole: Whole, tmp_path: Path) -> None:
    """A worker that it killed would end the run with an error."""
    recipe = replace(whole.recipes["causal"], workers=2)
    out = tmp_path / "run"

    def signal_all() -> None:
        os.setpgrp()
        start = loader.start_worker
        train_step = Trainer.train_step
        sent = list[bool]()

        def slowly(worker: int) -> None:
            (tmp_path / f"worker{worker}-{os.getpid()}").touch()
            time.sleep(3 * worker)
            start(worker)

        def outer(*given: Any, **more: Any) -> Any:
            if not sent:
                sent.append(True)
                while len(list(tmp_path.glob("worker1-*"))) < 2:  # the first measured a step
                    time.sleep(0.01)
                kill = f"import os; os.killpg({os.getpgrp()}, {signal.SIGTERM})"
                subprocess.run([sys.executable, "-c", kill], start_new_session=True, check=True)
                time.sleep(0.5)
            return train_step(*given, **more)

        loader.start_worker = slowly
        Trainer.train_step = outer  # type: ignore[method-assign]

    code, said, _ = command(recipe, out, signal_all)
    assert code == commands.EXIT_STOPPED, said
    assert "stopped" in said
    assert "Error" not in said


def test_workers_end_with_a_run_that_fails_while_its_traceback_holds_them(
    whole: Whole, tmp_path: Path
) -> None:
    """`multiprocessing` sends SIGTERM to workers at exit, and waits for them."""
    file = tmp_path / "recipe.json"
    file.write_text(replace(whole.recipes["causal"], workers=2).to_json())
    process = subprocess.run(
        [sys.executable, "-c", FAILS, file, tmp_path / "run"],
        text=True,
        capture_output=True,
        timeout=patience(60),
        check=False,
    )
    assert process.stderr.endswith("RuntimeError: a step fails\n")


def test_signals_at_any_time_exit_soon_with_75(whole: Whole, tmp_path: Path, long: bool) -> None:
    name = "masked"
    for i in range(88 if long else 3):
        draw = random.Random(i)
        out = tmp_path / f"run-{i}"
        file = tmp_path / "recipe.json"
        file.write_text(whole.recipes[name].to_json())

        def work(file: Path = file, out: Path = out) -> None:
            sys.argv = ["weft", "train", str(file), "--output", str(out)]
            signal.signal(signal.SIGTERM, cli.exit_on_sigterm)  # as the command does first of all
            raise SystemExit(cli.main())

        pid = fork(work, out.with_suffix(".json"))
        time.sleep(draw.uniform(0.2, 1) * whole[name][3])
        asked = time.monotonic()
        for _ in range(2):
            os.kill(pid, signal.SIGTERM)
            time.sleep(draw.choice([0.0, 0.001, 0.05]))
        code = wait(pid)
        said = out.with_suffix(".out").read_text()
        assert time.monotonic() - asked < patience(LIMIT)
        assert code == (0 if code == 0 and is_finished(out) else commands.EXIT_STOPPED), (
            code,
            said,
        )
        if steps_of(out):
            saved = latest_checkpoint(out / "checkpoints", pytest.fail)
            assert saved.step == steps_of(out)[-1]
        whole.same(name, child(whole.recipes[name], out), out)


def test_a_long_validation_is_broken_off_and_the_run_saved(whole: Whole, tmp_path: Path) -> None:
    def slow() -> None:
        validate = validation.validate

        def long(trainer: Trainer, *rest: Any) -> Any:
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            signal.signal(signal.SIGALRM, lambda *_: twice())
            forward = trainer.loss.forward
            trainer.loss.forward = lambda batch: (time.sleep(1), forward(batch))[1]  # type: ignore[method-assign]
            return validate(trainer, *rest)

        validation.validate = long

    recipe = whole.recipes["causal"]
    valid = replace(recipe.data, prepared_folder=str(tmp_path / "data"), valid=recipe.data.train)
    code, said, began = command(
        replace(recipe, data=valid, batch=R.FixedBatch(size=2, length=16)), tmp_path / "run", slow
    )
    assert code == commands.EXIT_STOPPED, said
    assert time.monotonic() - began < patience(LIMIT)
    saved = latest_checkpoint(tmp_path / "run" / "checkpoints", pytest.fail)
    assert saved.step == 6


@pytest.mark.parametrize("where", ["validation", "step"])
def test_a_validation_that_a_signal_broke_off_is_in_the_log_in_the_end(
    where: str, whole: Whole, tmp_path: Path
) -> None:
    # in step 12, after two that are tried out: before the second validation ends
    turn = 2 if where == "validation" else 12 + 2
    code, said, _ = command(whole.recipes["causal"], tmp_path / "run", lambda: at(where, turn, 0.0))
    assert code == commands.EXIT_STOPPED, said
    assert [line["step"] for line in told(tmp_path / "run") if "valid" in line] == [6]
    goes_on("causal", whole, tmp_path / "run")
    assert [line["step"] for line in told(tmp_path / "run") if "valid" in line] == [
        6,
        12,
        18,
        STEPS,
    ]


def test_a_signal_before_the_first_batch_exits_at_once(whole: Whole, tmp_path: Path) -> None:
    recipe = replace(
        whole.recipes["causal"],
        batch=R.FixedBatch(size=3_000_000, length=32),
        micro_batch_size=1,
        average=None,
    )
    out = tmp_path / "run"

    def plot() -> None:
        walk = Loader.planned_steps

        def slow(*given: Any) -> Any:
            signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGTERM))
            signal.setitimer(signal.ITIMER_REAL, 1.0)
            return walk(*given)

        Loader.planned_steps = slow  # type: ignore[method-assign]

    code, said, began = command(recipe, out, plot)
    assert code == commands.EXIT_STOPPED, said
    assert time.monotonic() - began < patience(1 + LIMIT)
    assert "saved" not in said
