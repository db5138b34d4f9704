"""The log: complete lines after any interruption, truncation on resume, and its plot."""

import json
import math
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.console import Console

import weft
from weft import recipe as R
from weft.recipe.recipe import sample_unit
from weft.runs.logs.curve import curve, ticks
from weft.runs.logs.log import LogLabels, RunLog, read_log
from weft.runs.logs.status import run_status, status_page
from weft.runs.logs.train_progress import TrainProgressLine
from weft.training.loop import TrainStep


def lines(*steps: int) -> str:
    return "".join(json.dumps({"step": s, "loss": 1 / s}) + "\n" for s in steps)


@pytest.mark.parametrize(
    ("before", "step", "kept"),
    [
        ("", 0, []),
        (lines(1, 2, 3), 2, [1, 2]),
        (lines(1, 2, 3) + '{"ste', 3, [1, 2, 3]),
        (lines(1, 2, 3), 0, []),
        (lines(1, 2) + '{"ste', 1, [1]),
        ('{"x', 4, []),
    ],
)
def test_a_log_is_cut_at_the_step_that_a_run_goes_on_from(
    before: str, step: int, kept: list[int], tmp_path: Path
) -> None:
    (tmp_path / "log.jsonl").write_text(before)
    with RunLog(tmp_path, step) as log:
        log.write(step=step + 1, loss=0.5)
    assert [line["step"] for line in read_log(tmp_path / "log.jsonl")] == [*kept, step + 1]


@pytest.mark.parametrize(("validated", "kept"), [(0, [2, 3]), (2, [2, 3]), (3, [2, 3, 3])])
def test_what_was_measured_at_the_very_step_stays_only_where_the_checkpoint_knows_of_it(
    validated: int, kept: list[int], tmp_path: Path
) -> None:
    ends = [{"step": 3, "valid": {"loss": 1.0}}, {"step": 3, "averaged": {"loss": 1.0}}]
    (tmp_path / "log.jsonl").write_text(
        lines(2, 3) + "".join(json.dumps(line) + "\n" for line in ends)
    )
    with RunLog(tmp_path, 3, validated):
        assert [line["step"] for line in read_log(tmp_path / "log.jsonl")] == kept


def test_images_are_counted_as_images(tmp_path: Path) -> None:
    event = TrainStep(1, 0.5, {"class": 0.5}, 1.0, 1e-3, 16, 0.1, 16, data_seconds=0.025)
    for recipe, unit in (
        (VIT, "images"),
        (replace(VIT, model=weft.bert("tiny"), task=R.MaskedLM(), average=None), "tokens"),
    ):
        (tmp_path / unit).mkdir()
        with RunLog(tmp_path / unit, 0, 0, LogLabels(sample_unit(recipe.model))) as log:
            log.step(event)
        (line,) = read_log(tmp_path / unit / "log.jsonl")
        assert line[unit] == 16
        assert ("tokens" in line) == (unit == "tokens")
        (tmp_path / unit / "recipe.json").write_text(replace(recipe, data=DATA).to_json())
        found = run_status(tmp_path / unit)
        assert (found["unit"], found[unit], found["speed"]) == (unit, 16, 160.0)
        assert found["data_wait"] == 0.25


def test_the_share_of_time_that_steps_wait_for_data_is_logged_and_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    progress = vit_progress()
    (tmp_path / "recipe.json").write_text(VIT.to_json())
    with RunLog(tmp_path, 0, 0, LogLabels("images")) as log:
        for step in (1, 2):
            event = TrainStep(step, 0.5, {}, 1.0, 1e-3, 16, 0.5, 16, data_seconds=0.02)
            log.step(event)
    assert "4.0% waiting for data" in progress_text(progress, event)
    assert [line["data_seconds"] for line in read_log(tmp_path / "log.jsonl")] == [0.02, 0.02]
    Console(width=200).print(status_page(run_status(tmp_path)))
    assert "4.0% of the time of the last steps was spent waiting" in capsys.readouterr().out
    (tmp_path / "log.jsonl").write_text('{"step": 1, "loss": 1.0, "seconds": 1.0}\n')
    assert run_status(tmp_path)["data_wait"] is None  # an older log does not say


def vit_progress() -> TrainProgressLine:
    return TrainProgressLine(
        VIT.name, VIT.steps, 0, unit="images", metric=VIT.metric, seconds_at_peak=1.0
    )


def progress_text(progress: TrainProgressLine, event: TrainStep) -> str:
    progress.show(event)
    return progress.line(event)


VIT = R.Recipe(
    name="x",
    model=weft.vit(depth=1, width=16, heads=2, hidden=32, image_size=16, patch_size=4, classes=3),
    task=R.Classification(),
    data=R.Data(
        rows=R.LabelledImages(), train=R.Source(paths=("a",)), valid=R.Source(paths=("b",))
    ),
    batch=R.FixedBatch(size=16, length=17),
    steps=40,
    optimiser=R.AdamW(lr=1e-3),
    average=R.BestCheckpoint(metric="accuracy"),
    eval_every=10,
)
DATA = R.Data(rows=R.Documents(), train=R.Source(paths=("a",)), valid=R.Source(paths=("b",)))


def drawn(text: str) -> tuple[list[ElementTree.Element], str]:
    found = list(ElementTree.fromstring(text).iter())
    return found, " ".join(e.text or "" for e in found)


def test_the_curve_shows_metric_rate_and_the_best_at_its_own_step_and_value() -> None:
    log: list[dict[str, Any]] = [
        {"step": s, "loss": 1.0 - s / 100, "lr": s / 1000} for s in range(1, 41)
    ]
    log += [
        {"step": s, "valid": {"loss": 0.9 - s / 100, "accuracy": a}}
        for s, a in ((10, 0.5), (20, 0.9), (30, 0.7), (40, 0.6))
    ]
    log += [{"step": 40, "best": {"loss": 0.7, "accuracy": 0.9, "step": 20}}]
    parts, text = drawn(curve(log, "x", VIT.task.loss_unit, VIT.metric))
    for word in (
        "loss (nats)",
        "accuracy",
        "learning rate",
        "best 0.7000 at step 20",
        "best 0.9000 at step 20",
        "step",
    ):
        assert word in text
    dots = {
        name: [(e.get("cx"), e.get("cy")) for e in parts if e.get("class") == name]
        for name in ("best", "validation")
    }
    assert len(dots["best"]) == 2  # of the loss and of the metric
    assert dots["best"] == [dots["validation"][1], dots["validation"][5]]
    assert "squared error" in curve(log, "x", R.MaskedAutoencoding().loss_unit)


def test_ticks_are_round_and_inside() -> None:
    for low, high in ((0, 2000), (1.47, 4.2), (0.001, 0.0042), (3, 3.00001)):
        found = ticks(low, high)
        assert 1 <= len(found) <= 8
        assert all(low - 1e-9 <= t <= high + 1e-9 for t in found)


def test_validations_that_are_not_finite_leave_a_log_of_json_and_a_run_that_finishes(
    tmp_path: Path,
) -> None:
    (tmp_path / "log.jsonl").write_text(
        lines(1) + '{"step": 1, "valid": {"loss": NaN}}\n'  # of an earlier version
    )
    with RunLog(tmp_path, 1, 1) as log:
        log.validation(2, "valid", {"loss": math.inf, "accuracy": 0.5})
        log.validation(3, "valid", {"loss": math.nan})
        log.finish()
    written = (tmp_path / "log.jsonl").read_text().splitlines()[2:]
    assert [json.loads(line)["valid"] for line in written] == [{"accuracy": 0.5}, {}]
    assert [line["step"] for line in read_log(tmp_path / "log.jsonl")] == [1, 1, 2, 3]
    assert (tmp_path / "curve.svg").exists()
    (tmp_path / "recipe.json").write_text(VIT.to_json())
    assert run_status(tmp_path)["valid_loss"] is None


def test_many_damaged_lines_are_numbered_in_one_pass(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    said = list[str]()
    many = 30_000
    path.write_text(lines(1) + f"{'not of this run ' * 4}\n" * many)
    begin = time.process_time()
    RunLog(tmp_path, 1, report=said.append).file.close()
    assert time.process_time() - begin < 3  # one pass for every line would take ten times that
    assert said == [
        f"{path}, lines 2, 3, 4, 5, 6, 7, 8, 9, …: damaged, or not of this run; removed"
    ]
    assert [line["step"] for line in read_log(path)] == [1]
