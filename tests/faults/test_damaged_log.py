"""F23: a log cut at any byte, a digit of it changed, a line doubled: the next start reports it in
one line, and the checkpoint's own record decides where the run continues.
"""

import json
import random
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests import whole_runs
from weft import cli
from weft import recipe as R
from weft.runs.logs.log import RunLog, read_log
from weft.runs.logs.status import run_status

from .runs import steps_of, train
from .test_run_folder import own

# the checkpoint's step, the log's, and how often there is a validation
SAVED = 12
LAST = 15
EVERY = 4


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("log")
    with RunLog(folder, 0) as log:
        for step in range(1, LAST + 1):
            log.write(step=step, loss=3 + step / 7, lr=1e-3, seconds=0.25, tokens=4096)
            if step % EVERY == 0:
                log.validation(step, "valid", {"loss": 2 + step / 9, "accuracy": 0.5})
    return (folder / "log.jsonl").read_bytes()


def keys(folder: Path) -> list[tuple[int, str]]:
    return [
        (line["step"], "valid" if "valid" in line else "loss")
        for line in read_log(folder / "log.jsonl")
    ]


UNHURT = [
    key
    for step in range(1, SAVED + 1)
    for key in ((step, "loss"), *([(step, "valid")] if step % EVERY == 0 else []))
]


def continued(folder: Path, text: bytes) -> list[str]:
    """What a start after the checkpoint's step reports of this log."""
    reported = list[str]()
    (folder / "log.jsonl").write_bytes(text)
    with RunLog(folder, SAVED, SAVED, report=reported.append) as log:
        log.write(step=SAVED + 1, loss=1.0)
    assert keys(folder)[-1] == (SAVED + 1, "loss")
    return reported


def places(count: int, end: int, long: bool) -> Iterator[int]:
    """All places of a file, or some of them."""
    drawn = random.Random(0).sample(range(end), min(count, end))
    yield from range(end) if long else drawn


def kept_bytes(whole: bytes) -> int:
    """Where the lines up to the checkpoint end."""
    return sum(len(line) for line in whole.splitlines(keepends=True)[: len(UNHURT)])


def test_a_cut_at_any_byte_is_reported_unless_the_run_writes_those_lines_again(
    whole: bytes, tmp_path: Path, long: bool
) -> None:
    kept = kept_bytes(whole)
    for place in {*places(100, len(whole), long), 0, kept - 1, kept, len(whole)}:
        reported = continued(tmp_path, whole[:place])
        complete = UNHURT[: whole[: min(place, kept)].count(b"\n")]
        assert keys(tmp_path) == [*complete, (SAVED + 1, "loss")]
        assert len(reported) == (place < kept), place
        for line in reported:
            last = max((step for step, kind in complete if kind == "loss"), default=0)
            first = f"steps {last + 1}" if last < SAVED else "the validation"
            assert first in line
            assert f"step {SAVED}" in line


def test_a_changed_digit_is_reported_with_its_line_which_no_reader_uses(
    whole: bytes, tmp_path: Path, long: bool
) -> None:
    digits = [place for place in range(len(whole)) if whole[place : place + 1].isdigit()]
    for chosen in places(100, len(digits), long):
        place = digits[chosen]
        digit = b"%d" % ((int(whole[place : place + 1]) + 1 + chosen % 9) % 10)
        hurt = whole[:place] + digit + whole[place + 1 :]
        assert hurt != whole
        number = whole[:place].count(b"\n") + 1
        (line,) = continued(tmp_path, hurt)
        assert f"line {number}:" in line
        left = [key for n, key in enumerate(UNHURT, 1) if n != number]
        assert keys(tmp_path) == [*left, (SAVED + 1, "loss")]


@pytest.mark.parametrize("to", ["behind itself", "end of the log"])
def test_a_doubled_line_counts_once(to: str, whole: bytes, tmp_path: Path) -> None:
    lines = whole.splitlines(keepends=True)
    for number in range(len(UNHURT)):
        at = number + 1 if to == "behind itself" else len(lines)
        text = b"".join([*lines[:at], lines[number], *lines[at:]])
        (line,) = continued(tmp_path, text)
        assert f"line {at + 1}:" in line
        assert keys(tmp_path) == [*UNHURT, (SAVED + 1, "loss")]


# Runs


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[R.Recipe, Path, Path]:
    """A run of eight steps that is finished, and the same one stopped after the checkpoint of step
    6.
    """
    folder = tmp_path_factory.mktemp("runs")
    recipe = own(folder / "data", eval_every=3)
    train(recipe, folder / "finished")
    steps = whole_runs.train(recipe, folder / "begun")
    for event in steps:
        if event.step == 6:
            break
    steps.close()
    return recipe, folder / "finished", folder / "begun"


def test_a_run_whose_log_lost_its_tail_says_so_and_continues_from_its_checkpoint(
    runs: tuple[R.Recipe, Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    shutil.copytree(runs[2], out)
    lines = (out / "log.jsonl").read_bytes().splitlines(keepends=True)
    (out / "log.jsonl").write_bytes(b"".join(lines[:5]) + lines[5][:40])
    assert cli.main(["resume", str(out)]) == 0
    (told,) = [line for line in capsys.readouterr().err.splitlines() if "log.jsonl" in line]
    assert "steps 5 to 6" in told
    assert steps_of(out) == [1, 2, 3, 4, 7, 8]
    assert (out / "model" / "model.safetensors").read_bytes() == (
        runs[1] / "model" / "model.safetensors"
    ).read_bytes()
    assert cli.main(["resume", str(out)]) == 0
    assert "log.jsonl" not in capsys.readouterr().err


@pytest.mark.parametrize("fault", ["last line lost", "last byte lost", "digit", "doubled", "gone"])
def test_a_finished_run_reports_a_log_that_is_not_as_it_wrote_it(
    fault: str,
    runs: tuple[R.Recipe, Path, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "run"
    shutil.copytree(runs[1], out)
    assert cli.main(["resume", str(out)]) == 0
    assert "log.jsonl" not in capsys.readouterr().err
    path = out / "log.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    if fault == "last line lost":
        path.write_bytes(b"".join(lines[:-1]))
    elif fault == "last byte lost":
        path.write_bytes(b"".join(lines)[:-1])
    elif fault == "doubled":
        path.write_bytes(b"".join([*lines, lines[2]]))
    elif fault == "digit":
        path.write_bytes(b"".join(lines).replace(b'"step": 8', b'"step": 9', 1))
    else:
        path.unlink()
    said = list[str]()
    train(runs[0], out, say=said.append)
    assert len([line for line in said if "log.jsonl" in line]) == 1
    assert not [line for line in said if "exporting" in line]


@pytest.mark.parametrize("lost", ["log.jsonl", "a part of the log", "log and checkpoints"])
def test_a_finished_run_stays_finished_without_its_log(
    lost: str,
    runs: tuple[R.Recipe, Path, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "run"
    shutil.copytree(runs[1], out)
    lines = (out / "log.jsonl").read_bytes().splitlines(keepends=True)
    (out / "log.jsonl").unlink()
    if lost == "a part of the log":
        (out / "log.jsonl").write_bytes(b"".join(lines[:3]))
    if lost == "log and checkpoints":
        shutil.rmtree(out / "checkpoints")
    for verb in ("resume", "status"):
        assert cli.main([verb, str(out), "--json"]) == 0
        status = json.loads(capsys.readouterr().out)
        assert status["finished"]
        assert status["state"] == "finished"
        assert status["step"] == runs[0].steps


def test_a_run_that_lost_its_log_is_at_the_step_of_its_checkpoint(
    runs: tuple[R.Recipe, Path, Path], tmp_path: Path
) -> None:
    out = tmp_path / "run"
    shutil.copytree(runs[2], out)
    (out / "log.jsonl").unlink()
    status = run_status(out)
    assert not status["finished"]
    assert status["step"] == status["checkpoint_step"] == 6


def test_a_longer_recipe_in_a_finished_run_is_not_finished(
    runs: tuple[R.Recipe, Path, Path], tmp_path: Path
) -> None:
    """A kill between the new recipe and the new log."""
    out = tmp_path / "run"
    shutil.copytree(runs[1], out)
    (out / "recipe.json").write_text(replace(runs[0], steps=9).to_json())
    assert not run_status(out)["finished"]
