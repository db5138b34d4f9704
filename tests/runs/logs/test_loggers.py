"""Experiment trackers get every line of log.jsonl once, and cannot change or end a run."""

import json
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import weft
from weft import recipe as R
from weft.commands.train import with_loggers
from weft.runs.logs.log import RunLog, read_log, restore_log
from weft.runs.logs.loggers import LogStart, LogWriters, scalars_of
from weft.support.registry import CHOICES, IMPLEMENTATIONS
from weft.training.checkpoints.compatibility import recipe_differences
from weft.training.loop import TrainStep

from ...faults.runs import ranks

Scalars = list[tuple[str, int, float]]
SMALL = R.Recipe(
    name="small",
    model=weft.gpt2(depth=1, width=8, heads=2, vocab_size=32, positions=8),
    task=R.CausalLM(),
    data=R.Data(
        rows=R.Documents(),
        tokenizer=R.CharacterTokenizer(),
        train=R.Source(paths=("text.txt",), document_boundary="file"),
    ),
    batch=R.FixedBatch(size=2, length=8),
    steps=4,
    optimiser=R.AdamW(lr=1e-3),
    checkpoints=R.Checkpoints(every_steps=2),
)


def train(recipe: R.Recipe, folder: str) -> list[str]:
    lines: list[str] = []
    for _ in weft.train(recipe, weft.prepare(recipe.data), folder, report=lines.append):
        pass
    return lines


def trackers(recipe: R.Recipe, folder: Path, step: int) -> LogWriters:
    config = {"optimiser.lr": recipe.optimiser.lr}
    return LogWriters(LogStart(folder, step, config), recipe.loggers, lambda line: None)


def write_lines(recipe: R.Recipe, folder: Path, kept: int, last: int) -> None:
    """Continue after the checkpoint of a step until a kill; no checkpoint had seen its
    validation.
    """
    with RunLog(folder, kept, 0, trackers=trackers(recipe, folder, kept)) as log:
        if kept in (3, 5):
            log.validation(kept, "valid", {"loss": kept / 2})
        for step in range(kept + 1, last + 1):
            log.step(TrainStep(step, 1 / step, {"nll": 2 / step}, 0.5, 1e-3, 16, 0.1, step))
            if step in (3, 5):
                log.validation(step, "valid", {"loss": step / 2})


def write_twice(recipe: R.Recipe, folder: Path) -> None:
    """Five steps and two validations, then a kill; the checkpoint of step 3 had not seen its
    validation.
    """
    write_lines(recipe, folder, 0, 5)
    write_lines(recipe, folder, 3, 6)


# What each package wrote


def tensorboard_scalars(folder: Path) -> Scalars:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    return [
        (tag, event.step, event.value)
        for tag in events.Tags()["scalars"]
        for event in events.Scalars(tag)
    ]


def wandb_records(path: Path) -> Iterator[bytes]:
    """The records of a .wandb file: LevelDB's log format after a header of 7 bytes, in blocks of 32
    KiB.
    """
    data = path.read_bytes()
    at = 7
    parts = b""
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        length = int.from_bytes(data[at + 4 : at + 6], "little")
        kind = data[at + 6]
        parts += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # a whole record, or its last part
            yield parts
            parts = b""


def wandb_scalars(folder: Path) -> Scalars:
    from wandb.proto.wandb_internal_pb2 import Record

    files = sorted(folder.glob("wandb/offline-run-*/run-*.wandb"))
    assert len({path.name for path in files}) == 1, "one run, however often it is resumed"
    scalars: Scalars = []
    for path in files:
        for data in wandb_records(path):
            record = Record()
            record.ParseFromString(data)
            if record.WhichOneof("record_type") == "history":
                items = record.history.item
                row = {
                    item.key or "/".join(item.nested_key): json.loads(item.value_json)
                    for item in items
                }
                step = row.pop("step")
                scalars += [
                    (name, step, value) for name, value in row.items() if not name.startswith("_")
                ]
    return scalars


def mlflow_scalars(folder: Path) -> Scalars:
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=(folder / "mlflow").as_uri())
    (experiment,) = [e for e in client.search_experiments() if e.name == "weft"]
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.data.params["optimiser.lr"] == "0.001"
    return [
        (name, metric.step, metric.value)
        for name in run.data.metrics
        for metric in client.get_metric_history(run.info.run_id, name)
    ]


def trackio_scalars(folder: Path) -> Scalars:
    with closing(sqlite3.connect(folder.parent / "trackio" / "weft.db")) as database:
        rows = database.execute("SELECT step, metrics FROM metrics").fetchall()
    return [(name, step, value) for step, text in rows for name, value in json.loads(text).items()]


@pytest.mark.parametrize(
    ("logger", "scalars"),
    [
        (R.TensorBoard(), tensorboard_scalars),
        (R.WandB(), wandb_scalars),
        (R.MLflow(), mlflow_scalars),
        (R.Trackio(), trackio_scalars),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
@pytest.mark.filterwarnings("ignore")  # of the packages
def test_a_tracker_holds_every_number_of_the_log_once_after_a_kill_too(
    logger: R.Logger, scalars: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))  # read when it is imported
    pytest.importorskip(
        logger.name,
        reason=f"needs the extra {logger.name}; trackio wants an older Pillow than our pin",
    )
    folder = tmp_path / "run"
    folder.mkdir()
    write_twice(replace(SMALL, loggers=(logger,)), folder)
    expected = [
        (name, line["step"], pytest.approx(value))
        for line in read_log(folder / "log.jsonl")
        for name, value in scalars_of(line)
    ]
    assert len(expected) > 30
    # wandb writes in a process of its own, which may still do so on a busy machine
    deadline = time.monotonic() + 20
    while len(scalars(folder)) < len(expected) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert sorted(scalars(folder)) == sorted(expected, key=lambda item: item[:2])


def test_a_logger_of_ones_own_that_fails_is_one_warning_and_no_other_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("the cat sat on the mat\n" * 20)
    calls: list[int] = []

    @weft.register
    class Fragile(weft.Logger):
        name = "fragile"

    @weft.implements(Fragile)
    class FragileWriter:
        can_rewind = False

        def __init__(self, logger: Fragile, start: LogStart) -> None:
            assert start.config["optimiser.lr"] == 1e-3

        def log(self, step: int, scalars: dict[str, float]) -> None:
            calls.append(step)
            if step == 2:
                raise ConnectionError("no route to host")

        def flush(self) -> None:
            """Nothing to flush."""

        def close(self) -> None:
            raise AssertionError("a logger that failed is left alone")

    try:
        train(SMALL, "plain")
        lines = train(replace(SMALL, loggers=with_loggers((), ["fragile"])), "logged")
    finally:
        CHOICES.pop("Fragile")
        IMPLEMENTATIONS.pop(Fragile)
    assert calls == [1, 2]
    assert [line for line in lines if "Fragile" in line] == [
        "Fragile failed and receives no more lines of this run (no route to host); log.jsonl is "
        "complete, "
        "and training continues"
    ]
    weights = [Path(run, "model", "model.safetensors").read_bytes() for run in ("plain", "logged")]
    assert weights[0] == weights[1]
    assert len(read_log(Path("logged/log.jsonl"))) == len(read_log(Path("plain/log.jsonl")))


@pytest.fixture
def recorder() -> Iterator[tuple[R.Logger, list[str], list[int]]]:
    """A logger, what it was given, and the steps at which it fails."""
    given = list[str]()
    failures = list[int]()

    @weft.register
    class Recorder(weft.Logger):
        name = "recorder"

    @weft.implements(Recorder)
    class RecorderWriter:
        can_rewind = False

        def __init__(self, logger: Recorder, start: LogStart) -> None:
            """Nothing to open."""

        def log(self, step: int, scalars: dict[str, float]) -> None:
            if step in failures:
                raise ConnectionError("no route to host")
            given.append(f"{step}v" if "valid/loss" in scalars else f"{step}")

        def flush(self) -> None:
            """Nothing to flush."""

        def close(self) -> None:
            """Nothing to close."""

    yield Recorder(), given, failures
    CHOICES.pop("Recorder")
    IMPLEMENTATIONS.pop(Recorder)


ALL = ["1", "2", "3", "3v", "4", "5", "5v", "6"]


def test_a_tracker_that_is_added_returns_or_failed_gets_what_it_lacks_and_nothing_twice(
    recorder: Any, tmp_path: Path
) -> None:
    logger, given, failures = recorder
    logged = replace(SMALL, loggers=(logger,))
    stays = [(logged, 0, 5), (logged, 3, 4), (logged, 3, 6)]  # killed twice after one checkpoint
    added = [(SMALL, 0, 5), (logged, 3, 6)]
    returns = [(logged, 0, 2), (SMALL, 1, 5), (logged, 5, 6)]
    left_early = [(logged, 0, 5), (SMALL, 3, 4), (logged, 4, 6)]  # it is ahead when it returns
    for number, starts in enumerate((stays, added, returns, left_early)):
        given.clear()
        (folder := tmp_path / str(number)).mkdir()
        for recipe, kept, last in starts:
            write_lines(recipe, folder, kept, last)
        assert given == ALL, starts
    given.clear()
    (folder := tmp_path / "failed").mkdir()
    failures.append(2)
    write_lines(logged, folder, 0, 5)
    assert given == ["1"]
    failures.clear()
    write_lines(logged, folder, 3, 6)
    assert given == ALL


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[1]",
        '{"ids": 3}',
        "\x00\x00",
        '{"received": {}, "attached": ["Recorder"]}',
        '{"received": {"Recorder": [1]}}',
        '{"received": {"Recorder": ["1", 0]}}',
    ],
)
def test_a_damaged_record_of_the_trackers_is_one_line_and_they_get_the_whole_run(
    recorder: Any, tmp_path: Path, content: str
) -> None:
    logger, given, _ = recorder
    write_lines(SMALL, tmp_path, 0, 5)
    (tmp_path / "loggers.json").write_text(content)
    restore_log(tmp_path / "log.jsonl", 9, (tmp_path / "log.jsonl").read_bytes())
    lines = list[str]()
    added = LogWriters(LogStart(tmp_path, 5), (logger,), lines.append)
    with RunLog(tmp_path, 5, 5, trackers=added, report=lines.append):
        assert given == ALL[:-1]
    assert [f"{tmp_path}/loggers.json is damaged" in line for line in lines] == [True]
    assert json.loads((tmp_path / "loggers.json").read_text())["attached"] == ["Recorder"]


def test_only_the_first_rank_logs(
    recorder: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("the cat sat on the mat\n" * 20)
    logger, given, _ = recorder
    recipe = replace(SMALL, loggers=(logger,), device="cpu")
    train(replace(SMALL, steps=1), "warm")  # prepares the data, and imports what the ranks need

    def work() -> list[str]:
        train(recipe, "run")
        return given  # of this process

    first, second = ranks(recipe, tmp_path / "run", 2, work)
    assert first == ["1", "2", "3", "4"]
    assert second == []


def test_a_missing_tracker_raises_an_error_with_a_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ValueError, match=r"pip install '\.\[wandb\]'"):
        LogWriters(LogStart(tmp_path, 0), (R.WandB(),), print)


def test_loggers_are_named_once_and_may_change_between_two_starts() -> None:
    loggers = with_loggers((R.WandB(project="mine"),), ["wandb", "tensorboard"])
    assert loggers == (R.WandB(), R.TensorBoard())
    recipe = replace(SMALL, loggers=loggers)
    assert recipe_differences(SMALL, recipe) == []
    assert R.apply_overrides(SMALL, ["loggers=MLflow"]).loggers == (R.MLflow(),)
    with pytest.raises(ValueError, match="did you mean 'tensorboard'"):
        with_loggers(SMALL.loggers, ["tensorbord"])
