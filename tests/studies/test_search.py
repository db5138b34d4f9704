"""F22: `weft tune` repeated into one folder. Nothing better is replaced by worse, no trial is
forgotten or run again, and other settings are refused before anything changes.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from weft import recipe as R
from weft.cli import main
from weft.commands.tune import plan_tuning
from weft.commands.tune_options import TuneOptions
from weft.data.preparing.prepare import prepare
from weft.interop.loading import load
from weft.interop.manifest import find_damage
from weft.runs.lock import RunLock
from weft.studies import results, search
from weft.studies.launchers import Processes
from weft.studies.runs import study_states

from ..commands.tuned_data import checkpoint, write_examples
from .runs import killed

# a rate at which the model learns, and one at which it does not
GOOD = 3e-3
BAD = 1e-9


def tune(
    options: TuneOptions,
    stop_after: int | None = None,
    report: Callable[[str], None] = lambda line: None,
) -> list[str]:
    """Tune, or stop after a number of steps; return the trials that were trained."""
    trained = dict[str, None]()
    steps = search.run_trials(plan_tuning(options), report)
    for number, step in enumerate(steps, 1):
        trained[f"trial-{step.lr:g}-{step.seed}"] = None
        if number == stop_after:
            break
    steps.close()  # type: ignore[attr-defined]
    return [*trained]


@pytest.fixture
def first(tmp_path: Path) -> TuneOptions:
    """The options of a first call, which is finished: one rate, at which the model learns."""
    start = checkpoint(tmp_path / "start")
    texts = R.Source(paths=(str(write_examples(tmp_path / "text.jsonl", 4)),))
    data = R.Data(rows=R.LabelledTexts(), train=texts, tokenizer=R.ByteTokenizer())
    prepare(data, tmp_path / "bytes")
    shutil.copy(tmp_path / "bytes" / "tokenizer.json", start)
    options = TuneOptions(
        checkpoint=str(start),
        data=(str(write_examples(tmp_path / "train.jsonl", 60)),),
        output=str(tmp_path / "run"),
        learning_rates=(GOOD,),
        seeds=1,
        epochs=2,
        batch_size=8,
        precision="fp32",
        metric="loss",
    )
    assert tune(options) == ["trial-0.003-0"]
    return options


def held(options: TuneOptions, *parts: str) -> dict[str, str]:
    """The digests of all files in the folder, or in parts of it, but the lock, which names its last
    holder, and what a killed write leaves."""
    root = Path(str(options.output))
    files = [file for part in parts or (".",) for file in sorted((root / part).rglob("*"))]
    return {
        str(file.relative_to(root)): sha256(file.read_bytes()).hexdigest()
        for file in files
        if file.is_file() and file.name != "lock" and file.suffix != ".tmp"
    }


def table(options: TuneOptions) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((Path(str(options.output)) / "tune.json").read_text())
    return found


def names(options: TuneOptions) -> list[str]:
    return [one["trial"] for one in table(options)["trials"]]


def test_a_worse_trial_of_a_second_call_leaves_the_best_model_and_the_earlier_trials(
    first: TuneOptions,
) -> None:
    """Accuracy 1.000 was replaced by .625, and the table had the last call's trials alone."""
    before = held(first, "model", "trial-0.003-0")
    trial = table(first)["trials"][0]
    assert tune(replace(first, learning_rates=(BAD,))) == ["trial-1e-09-0"]
    assert held(first, "model", "trial-0.003-0") == before
    assert names(first) == ["trial-0.003-0", "trial-1e-09-0"]
    assert table(first)["trials"][0] == trial
    assert table(first)["best"] == "trial-0.003-0"
    assert R.recipe_of_run(Path(str(first.output))).optimiser.lr == GOOD
    assert tune(replace(first, learning_rates=(BAD, GOOD))) == []


def test_a_better_trial_of_a_second_call_becomes_the_model(
    first: TuneOptions, tmp_path: Path
) -> None:
    worse = replace(first, output=str(tmp_path / "other"), learning_rates=(BAD,))
    tune(worse)
    assert tune(replace(worse, learning_rates=(GOOD,))) == ["trial-0.003-0"]
    out = tmp_path / "other"
    assert (out / "model/model.safetensors").read_bytes() == (
        out / "trial-0.003-0/model/model.safetensors"
    ).read_bytes()
    assert find_damage(out / "model") is None
    load(out / "model")


def test_more_seeds_go_to_the_best_rate_of_all_calls(first: TuneOptions) -> None:
    more = replace(first, learning_rates=(BAD,), seeds=2)
    lines = list[str]()
    assert tune(more, report=lines.append) == ["trial-1e-09-0", "trial-0.003-1"]
    assert names(first) == ["trial-0.003-0", "trial-1e-09-0", "trial-0.003-1"]
    loss = table(first)["trials"][0]["loss"]
    assert lines == [
        f"trial-0.003-0 of an earlier call is the best with seed 0 (loss {loss:.4f}); further "
        "seeds use its learning rate 0.003"
    ]
    assert tune(more) == []


def test_a_second_call_stopped_anywhere_loses_nothing(first: TuneOptions) -> None:
    before = held(first, "model", "trial-0.003-0")
    more = replace(first, learning_rates=(BAD, 2e-9))
    steps = plan_tuning(more).recipe.steps
    for stop_after in (1, steps - 2, 2, steps):
        tune(more, stop_after)
        assert held(first, "model", "trial-0.003-0") == before
        assert table(first)["best"] == "trial-0.003-0"
    tune(more)
    assert held(first, "model", "trial-0.003-0") == before
    assert set(names(first)) == {"trial-0.003-0", "trial-1e-09-0", "trial-2e-09-0"}


@pytest.mark.parametrize("lost", ["the table", "the folder of the trial", "the end of its log"])
def test_the_best_trial_is_known_from_what_is_left_of_it(lost: str, first: TuneOptions) -> None:
    out = Path(str(first.output))
    model = held(first, "model")
    trial = table(first)["trials"][0]
    if lost == "the table":
        (out / "tune.json").write_text('{"trials": [')
    elif lost == "the folder of the trial":
        shutil.rmtree(out / "trial-0.003-0")
    else:
        log = out / "trial-0.003-0" / "log.jsonl"
        log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-1]))
    assert tune(replace(first, learning_rates=(BAD, GOOD))) == ["trial-1e-09-0"]
    assert held(first, "model") == model
    assert trial in table(first)["trials"]
    assert table(first)["best"] == "trial-0.003-0"


def test_a_damaged_model_is_made_again_from_its_trial(first: TuneOptions) -> None:
    before = held(first, "model")
    weights = Path(str(first.output)) / "model/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    assert tune(first) == []
    assert held(first, "model") == before


def test_a_foreign_model_in_the_folder_is_refused_and_kept(
    first: TuneOptions, tmp_path: Path
) -> None:
    model = Path(str(first.output)) / "model"
    shutil.rmtree(model)
    shutil.copytree(tmp_path / "start", model)
    before = held(first)
    for use in (lambda: tune(first), lambda: load(model)):
        with pytest.raises(ValueError, match=re.escape(f"{model} is not")):
            use()
    assert held(first) == before


def other(options: TuneOptions, what: str, folder: Path) -> TuneOptions:
    return {
        "data": replace(options, data=(str(write_examples(folder / "b.jsonl", 60, seed=3)),)),
        "validation data": replace(
            options, valid=(str(write_examples(folder / "c.jsonl", 20, seed=4)),)
        ),
        "seed": replace(options, seed=1),
        "checkpoint": replace(options, checkpoint=str(copied(options, folder))),
        "epochs": replace(options, epochs=3),
        "metric": replace(options, metric="accuracy"),
        "dropout": replace(options, dropout=0.3),
    }[what]


def copied(options: TuneOptions, folder: Path) -> Path:
    return Path(shutil.copytree(options.checkpoint, folder / "start-2"))


@pytest.mark.parametrize(
    "what", ["data", "validation data", "seed", "checkpoint", "epochs", "metric", "dropout"]
)
def test_other_settings_are_refused_although_no_trial_has_the_same_rate(
    what: str, first: TuneOptions, tmp_path: Path
) -> None:
    """Scores on other data, after other steps or by another metric cannot be compared."""
    before = held(first)
    with pytest.raises(ValueError, match="give another"):
        tune(replace(other(first, what, tmp_path), learning_rates=(BAD,)))
    after = held(first)
    assert {name: after[name] for name in before} == before


def test_a_second_call_at_the_same_time_is_refused_in_one_line(first: TuneOptions) -> None:
    before = held(first)
    with (
        RunLock(Path(str(first.output))),
        pytest.raises(ValueError, match=r"is being trained by process \d+.*give another"),
    ):
        tune(replace(first, learning_rates=(BAD,)))
    assert held(first) == before


WRITES = ("open", "os.", "shutil.")


def kill_at(operation: int) -> None:
    """Kill this process before its n-th operation on files."""
    left = operation

    def hook(event: str, _: object) -> None:
        nonlocal left
        if event.startswith(WRITES) and event not in ("os.listdir", "os.scandir"):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def test_a_call_that_is_killed_anywhere_while_it_publishes_is_repaired_by_the_next(
    first: TuneOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder has the model of a worse trial, and a better one is published."""
    worse = replace(first, output=str(tmp_path / "other"), learning_rates=(BAD,))
    out = tmp_path / "other"
    backup = tmp_path / "backup"
    tune(worse)
    better = replace(worse, learning_rates=(GOOD,))
    plan = plan_tuning(better)
    with monkeypatch.context() as patch:
        patch.setattr(search, "publish_best", lambda *_: None)
        tune(better)
    shutil.copytree(out, backup)
    assert tune(better) == []
    expected = held(better)

    def publish(operation: int) -> None:
        kill_at(operation)
        results.publish_best(plan, "trial-0.003-0")

    for operation in count(1):
        shutil.rmtree(out)
        shutil.copytree(backup, out)
        code = killed(lambda operation=operation: publish(operation))
        assert list(search.run_trials(plan, print)) == []
        assert held(better) == expected
        if code == 0:
            break
        assert code == -signal.SIGKILL
    assert operation > 20


@pytest.mark.slow
@pytest.mark.parametrize("at_most", [1, 2])
def test_trials_in_processes_give_the_same_table_and_model(
    at_most: int, first: TuneOptions, tmp_path: Path
) -> None:
    one, two = (both_rounds(first, tmp_path / name) for name in ("one", "two"))
    tune(one)
    assert list(search.run_trials(plan_tuning(two), print, launcher=Processes(at_most))) == []
    assert without_times(two) == without_times(one)
    assert held(two, "model") == held(one, "model")


def test_a_call_that_is_killed_in_any_trial_ends_with_the_same_table_and_model(
    first: TuneOptions, tmp_path: Path
) -> None:
    one, two = (both_rounds(first, tmp_path / name) for name in ("one", "two"))
    tune(one)
    steps = plan_tuning(one).recipe.steps

    def tune_and_die(last: int) -> None:
        for number, _ in enumerate(search.run_trials(plan_tuning(two), print), 1):
            if number == last:
                os.kill(os.getpid(), signal.SIGKILL)

    # In the first trial, in the second, after its last step, and in a further seed; each begins
    # anew
    for last in (3, steps + 2, steps, steps + 4):
        assert killed(lambda last=last: tune_and_die(last)) == -signal.SIGKILL
    assert tune(two) == ["trial-0.003-1"]
    assert without_times(two) == without_times(one)
    assert held(two, "model") == held(one, "model")


@pytest.mark.slow
def test_two_trials_run_at_a_time_and_a_killed_command_is_continued(
    first: TuneOptions, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = (
        replace(both_rounds(first, tmp_path / name), epochs=8, device="cpu")
        for name in ("one", "two")
    )
    tune(one)
    command = (
        f"tune {two.checkpoint} --data {two.data[0]} --output {two.output} --learning-rates 1e-3 "
        "3e-3 --seeds 2 --epochs 8 "
        "--batch-size 8 --precision fp32 --metric loss --device cpu --at-a-time 2"
    ).split()
    searching = subprocess.Popen([sys.executable, "-m", "weft", *command])
    out = Path(str(two.output))
    deadline = time.monotonic() + 300
    while [trial.state for trial in study_states(out)] != ["running", "running"]:
        assert searching.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    with pytest.raises(ValueError, match="is being trained by process"):
        plan_tuning(two)
    searching.kill()
    searching.wait()
    while "running" in [trial.state for trial in study_states(out)]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert main(command) == 0
    assert "trial-0.003-1 runs in a child process" in capsys.readouterr().err
    assert without_times(two) == without_times(one)
    assert held(two, "model") == held(one, "model")


def both_rounds(options: TuneOptions, output: Path) -> TuneOptions:
    """The options of a search with two rates and a further seed, in a folder of its own."""
    return replace(options, output=str(output), learning_rates=(1e-3, GOOD), seeds=2)


def without_times(options: TuneOptions) -> list[dict[str, Any]]:
    return [
        {key: value for key, value in one.items() if key != "seconds"}
        for one in table(options)["trials"]
    ]
