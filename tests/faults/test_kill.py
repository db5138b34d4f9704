"""A run that is killed with SIGKILL at any time, once or repeatedly, resumes with bit-identical
results.
"""

import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from weft import recipe as R
from weft.runs import finish, run
from weft.training.checkpoints.checkpoint import all_checkpoints

from .runs import STEPS, Plot, Whole, after_save, at_step, child, die, fork, train, wait, whole

__all__ = ["whole"]
NAMES = (
    "causal",
    "masked",
    "replaced",
    "spans",
    "translation",
    "causal, lengths",
    "causal, bf16",
    "translation, packed",
    "images",
    "autoencoding",
    "distillation",
    "detection",
)


def while_saving(step: int, seconds: float) -> Plot:
    """Die a little after the first save from a step on has begun."""

    def plot(made: run.Run, event: Any) -> None:
        if event and event.step >= step and event.step % made.recipe.checkpoints.every_steps == 0:
            time.sleep(seconds)
            die()

    return plot


def hurt(recipe: R.Recipe, out: Path, draw: random.Random, seconds: float) -> None:
    """A child that is killed at a drawn step, in a drawn save, or at a drawn moment by its
    parent.
    """
    way = draw.choice(["step", "save", "moment", "moment"])
    if way == "step":
        assert child(recipe, out, at_step(draw.randint(1, STEPS))) is None
    elif way == "save":
        assert (
            child(
                recipe,
                out,
                while_saving(draw.randint(1, STEPS - 7), draw.choice([0, 2e-4, 1e-3, 3e-3, 1e-2])),
            )
            is None
        )
    else:
        pid = fork(lambda: train(recipe, out), out.with_suffix(".json"))
        time.sleep(draw.uniform(0.05, 1) * seconds)
        os.kill(pid, signal.SIGKILL)
        wait(pid)


def test_a_run_that_was_killed_anywhere_ends_bit_for_bit_as_one_that_was_not(
    whole: Whole, tmp_path: Path, long: bool
) -> None:
    for i in range(200 if long else 20):
        name = NAMES[i % len(NAMES)]
        draw = random.Random(i)
        out = tmp_path / f"run-{i}"
        recipe = whole.recipes[name]
        seconds = whole[name][3]
        hurt(recipe, out, draw, seconds)
        whole.same(name, child(recipe, out), out)


@pytest.mark.parametrize("name", ["spans", "translation", "images", "instruction", "preference"])
def test_repeated_kills_in_one_interval_do_not_change_results(
    name: str, whole: Whole, tmp_path: Path, long: bool
) -> None:
    """Saves are rare and epochs short, so several resumes start from one checkpoint in the second
    epoch or a later one.
    """
    recipe = whole.recipes[name]
    for i in range(20 if long else 1):
        draw = random.Random(f"{name} {i}")
        out = tmp_path / f"run-{i}"
        # its epoch is not the first
        due = recipe.checkpoints.every_steps * (STEPS // recipe.checkpoints.every_steps - 1)
        for step in (
            due + 1,
            due + 2,
            *(due + draw.randint(1, recipe.checkpoints.every_steps - 1) for _ in range(2)),
        ):
            assert child(recipe, out, after_save(out, due, step)) is None
            assert all_checkpoints(out / "checkpoints")[-1].step == due
        assert (
            all_checkpoints(out / "checkpoints")[-1].state["position"] > 53
            or recipe.length_schedule
        )
        assert child(recipe, out, at_step(STEPS - 1)) is None
        whole.same(name, child(recipe, out), out)


def test_augmented_images_go_on_bit_for_bit_with_another_number_of_workers(
    whole: Whole, tmp_path: Path
) -> None:
    recipe = whole.recipes["images"]
    out = tmp_path / "run"
    assert recipe.workers == 1
    assert child(recipe, out, at_step(13)) is None
    whole.same("images", child(replace(recipe, workers=2), out), out)


def test_a_kill_between_the_last_save_and_the_model_ends_the_same(
    whole: Whole, tmp_path: Path
) -> None:
    def plot(made: run.Run, event: Any) -> None:
        if event is None:
            finish.export_model = lambda *_: die()  # type: ignore[assignment,return-value]

    out = tmp_path / "run"
    assert child(whole.recipes["replaced"], out, plot) is None
    assert all_checkpoints(out / "checkpoints")[-1].step == STEPS
    whole.same("replaced", child(whole.recipes["replaced"], out), out)


def command(*words: str, **more: Any) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "weft.cli", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **more,
    )


def test_a_killed_command_resumes_in_a_new_interpreter_bit_for_bit(
    whole: Whole, tmp_path: Path
) -> None:
    recipe = whole.recipes["causal"]
    file = tmp_path / "recipe.json"
    out = tmp_path / "run"
    file.write_text(replace(recipe, steps=400, checkpoints=R.Checkpoints(every_steps=5)).to_json())
    process = command("train", str(file), "--output", str(out))
    while len(all_checkpoints(out / "checkpoints")) < 2:
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    process.kill()
    process.communicate()
    done = all_checkpoints(out / "checkpoints")[-1].step
    again = command("train", str(file), "--output", str(out))
    assert again.stderr
    said = ""
    while f"resuming after step {done}" not in said and again.poll() is None:
        said += again.stderr.readline()
    again.terminate()
    rest = again.communicate()
    assert again.returncode == 75, (said, rest)
    proof = command("resume", str(out), "--verify")
    assert "bit-identical" in proof.communicate()[0]
    assert proof.returncode == 0
