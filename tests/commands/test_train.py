"""`weft prepare`, `train`, `status` and `resume` on the command line."""

import fcntl
import json
import os
import shutil
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

import weft
from tests import whole_runs
from weft import recipe as R
from weft.cli import main
from weft.commands import EXIT_STOPPED
from weft.plan.cost import run_flops
from weft.runs.lock import RunLock, is_locked
from weft.runs.logs import progress, status, train_progress
from weft.support.values import from_plain
from weft.training.loop import Trainer

from ..tasks.cases import routed

RECIPE = """
import weft
from weft import recipe as R

tiny = R.Recipe(
    name="small",
    model=weft.gpt2(depth=1, width=16, heads=2, hidden=32, vocab_size=261, positions=16),
    task=R.CausalLM(),
    data=R.Data(rows=R.Documents(), train=R.Source(paths=("text.txt",)),
                valid=R.Source(paths=("text.txt",)), tokenizer=R.ByteTokenizer()),
    batch=R.FixedBatch(size=4, length=16),
    steps=6,
    optimiser=R.AdamW(lr=1e-3),
    checkpoints=R.Checkpoints(every_steps=2),
)
other = R.apply_overrides(tiny, ["name=other"])
"""


CONFLICT = ("average=BestCheckpoint", "average.metric=f1")  # neither is wrong alone


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("The quick brown fox jumps over the lazy dog.\n\n" * 40)
    Path("small.py").write_text(RECIPE)
    Path("broken.py").write_text("import weft\n1 / 0\n")
    Path("other.json").write_text('{"a": 1}')


def said(capsys: pytest.CaptureFixture[str]) -> str:
    found = capsys.readouterr()
    return " ".join((found.out + found.err).split())


def test_a_run_prints_its_plan_and_result_and_writes_a_model(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["train", "small.py"]) == 0
    text = said(capsys)
    for word in (
        "parameters",
        "tokens",
        "FLOP",
        "per checkpoint",
        "ms/step",
        "about",
        "finished",
        "validation",
    ):
        assert word in text
    assert {p.name for p in Path("runs/small").iterdir()} >= {
        "recipe.json",
        "log.jsonl",
        "checkpoints",
        "model",
        "curve.svg",
    }
    assert main(["show", "runs/small/model"]) == 0
    assert [
        json.loads(line)["step"] for line in Path("runs/small/log.jsonl").read_text().splitlines()
    ] == [1, 2, 3, 4, 5, 6, 6]


def test_status_knows_how_far_a_run_is(capsys: pytest.CaptureFixture[str]) -> None:
    main(["train", "small.py:other", "--set", "optimiser.lr=0.01"])
    capsys.readouterr()
    assert main(["status", "runs/other", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["step"], found["steps"], found["finished"]) == (6, 6, True)
    assert json.loads(Path("runs/other/recipe.json").read_text())["optimiser"]["lr"] == 0.01


def test_a_warmup_longer_than_the_run_is_one_line_with_a_value_that_works(
    capsys: pytest.CaptureFixture[str],
) -> None:
    warmup = ["schedule=CosineSchedule", "schedule.warmup_steps=187"]
    words = [word for change in (*warmup, "steps=40") for word in ("--set", change)]
    assert main(["train", "small.py", *words, "-o", "runs/short"]) == 0
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "warmup_steps" in line]
    assert "187" in line
    assert "40" in line
    fix = line.split()[-1]
    recipe = weft.load_recipe("small.py", [*warmup, "steps=3"])
    list(weft.train(recipe, weft.prepare(recipe.data)))  # in Python, too
    assert "warmup_steps = 187" in capsys.readouterr().err
    assert main(["train", "small.py", *words, "--set", fix, "-o", "runs/fixed"]) == 0
    assert "warmup_steps" not in capsys.readouterr().err
    rates = [
        json.loads(line).get("lr", 0)
        for line in Path("runs/fixed/log.jsonl").read_text().splitlines()
    ]
    assert max(rates) == pytest.approx(1e-3)


@pytest.mark.parametrize("changes", [["eval_every=4"], []])
def test_a_long_validation_shows_how_far_it_is(
    changes: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(train_progress, "SPINNER_DELAY", 0.0)
    monkeypatch.setattr(progress, "PLAIN_SECONDS", 0.0)
    assert main(["train", "small.py", *(f"--set={change}" for change in changes)]) == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("validated")]
    done = [int(line.split()[1]) for line in lines]
    size = 4
    samples = int(lines[0].split()[3])
    whole = list(range(size, samples, size))
    assert done == whole * (1 + len(changes))
    assert all(line.endswith("left") for line in lines)


def test_a_short_validation_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    line = train_progress.TrainProgressLine(
        "small", 10, 0, unit="tokens", metric=None, seconds_at_peak=1.0
    )
    line.next_print = 0.0  # due
    for done in range(5):
        line.show_validation(done, 5)
    assert capsys.readouterr().err == ""
    line.validation_started -= 2 * progress.SPINNER_DELAY
    line.show_validation(3, 5)
    assert "3 of 5" in capsys.readouterr().err


def test_status_alone_lists_the_runs_here(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status"]) == 2
    assert "runs does not exist" in capsys.readouterr().err
    for name in ("a", "b"):
        log_of(f"runs/{name}", [{"step": 1, "loss": 2.0, "tokens": 1, "seconds": 1.0, "lr": 1.0}])
    assert main(["status", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["run"] for one in found] == ["runs/a", "runs/b"]


def log_of(folder: str, lines: list[dict[str, Any]]) -> None:
    Path(folder).mkdir(parents=True)
    Path(folder, "recipe.json").write_text(
        R.apply_overrides(R.load_recipe("small.py"), ["eval_every=2", "steps=8"]).to_json()
    )
    Path(folder, "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_status_shows_means_of_the_same_kind_side_by_side(
    capsys: pytest.CaptureFixture[str],
) -> None:
    steps = [
        {"step": s, "loss": float(s), "tokens": 10 * s, "seconds": 1.0, "lr": 1.0}
        for s in range(1, 6)
    ]
    log_of("runs/a", [*steps[:4], {"step": 4, "valid": {"loss": 3.0}}, steps[4]])
    assert main(["status", "runs/a", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    # steps 3 and 4, by what they read: not the last step's
    assert found["loss"] == pytest.approx((3 * 30 + 4 * 40) / 70)
    assert (found["loss_steps"], found["valid_loss"], found["valid_step"], found["state"]) == (
        [3, 4],
        3.0,
        4,
        "stopped",
    )
    assert main(["status", "runs/a"]) == 0
    text = said(capsys)
    assert "stopped, step 5 of 8" in text
    assert "training 3.5714, mean of steps 3 to 4 validation 3.0000, at step 4" in text


def test_status_lists_and_compares_runs(capsys: pytest.CaptureFixture[str]) -> None:
    for name, loss in (("a", 1.5), ("b", 2.5)):
        log_of(
            f"runs/{name}",
            [
                {"step": 1, "loss": loss, "tokens": 1000, "seconds": 2.0, "lr": 1.0},
                {"step": 1, "valid": {"loss": loss + 1}},
            ],
        )
    Path("runs/other").mkdir()
    with RunLock("runs/b"):
        assert main(["status", "runs"]) == 0
        rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows[0] == [
        "run",
        "step",
        "state",
        "train",
        "valid",
        "metric",
        "tokens",
        "speed",
        "left",
    ]
    assert [row[:7] for row in rows[1:]] == [
        ["a", "1/8", "stopped", "1.5000", "2.5000", "1", "k"],
        ["b", "1/8", "running", "2.5000", "3.5000", "1", "k"],
    ]
    log_of("runs/c", [])
    assert main(["status", "runs/c"]) == 0
    assert "not started, 8 steps" in said(capsys)
    assert main(["status", "runs/b", "runs/a", "--json"]) == 0
    assert [found["run"] for found in json.loads(capsys.readouterr().out)] == ["runs/b", "runs/a"]


def test_a_glance_at_a_lock_never_keeps_a_trainer_out() -> None:
    run_ = Path("runs/a")
    RunLock(run_).release()
    assert not is_locked(run_)
    assert not is_locked(Path("runs/none"))
    glance = os.open(run_ / "lock", os.O_RDONLY)
    fcntl.flock(glance, fcntl.LOCK_SH)
    threading.Timer(0.05, os.close, (glance,)).start()
    with RunLock(run_):
        assert is_locked(run_)


def test_validation_appears_while_training(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "small.py", "--set", "eval_every=2"]) == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("step ")]
    found = [json.loads(line) for line in Path("runs/small/log.jsonl").read_text().splitlines()]
    valid = {line["step"]: line["valid"]["loss"] for line in found if "valid" in line}
    assert list(valid) == [2, 4, 6]
    assert (
        f"step 2/6  loss {found[0]['loss'] * 0.95 + found[1]['loss'] * 0.05:.4f}  valid loss "
        f"{valid[2]:.4f}  lr" in lines[0]
    )
    assert f"valid loss {valid[4]:.4f}" in lines[1]


@pytest.mark.parametrize("name", ["small.py", "small.py:other"])
def test_a_recipe_is_shown_with_its_parts_and_cost(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        main(
            [
                "show",
                name,
                "--set",
                "model.decoder.depth=3",
                "--set",
                "model.decoder.blocks.*.norm=post",
            ]
        )
        == 0
    )
    text = said(capsys)
    recipe = R.apply_overrides(
        R.load_recipe(name), ["model.decoder.depth=3", "model.decoder.blocks.*.norm=post"]
    )
    for word in (
        recipe.name,
        f"{recipe.model.parameter_count():,} parameters",
        "3 × block: x <- LayerNorm(x + Attention(x))",
        "CausalLM()",
        "text.txt",
        "FixedBatch(size=4, length=16)",
        "AdamW(lr=0.001)",
        "LinearSchedule()",
        "6 of at most 64 tokens",
        "FLOP",
        "per checkpoint",
        "norms after each residual sum; the final norm model.decoder.norm is removed",
    ):
        assert word in text
    assert main(["show", name, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert from_plain(found["recipe"]) == R.load_recipe(name)
    assert found["run_flops"] == run_flops(R.load_recipe(name))


def test_check_proves_that_the_last_interval_comes_out_the_same(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main(["train", "small.py"])
    capsys.readouterr()
    assert main(["resume", "runs/small", "--verify", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["first_step"], found["last_step"], found["same"]) == (4, 6, True)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["resume", "runs/small", "--verify"], "weft: trained again 1 of 2 steps, "),
        (
            ["evaluate", "runs/small", "--batch-size", "8", "--device", "cpu"],
            "weft: evaluated 8 of 224 rows, ",
        ),
        (["embed", "runs/small", "--batch-size", "1", "a", "b"], "weft: predicted 1 of 2 rows, "),
    ],
)
def test_long_work_without_a_terminal_prints_plain_lines_of_progress(
    words: list[str],
    line: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    main(["train", "small.py"])
    capsys.readouterr()
    monkeypatch.setattr(progress, "PLAIN_SECONDS", 1e9)
    main(words)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(progress, "PLAIN_SECONDS", 0.0)
    main(words)
    assert capsys.readouterr().err.startswith(line)


def test_an_interrupted_verification_says_that_the_run_is_unchanged(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    main(["train", "small.py"])
    capsys.readouterr()
    with monkeypatch.context() as inside:
        inside.setattr(Trainer, "train_step", lambda *_: signal.raise_signal(signal.SIGINT))
        before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may ignore it
        assert main(["resume", "runs/small", "--verify"]) == 130
        signal.signal(signal.SIGINT, before)
    *progress, last = capsys.readouterr().err.splitlines()  # progress: on a slow machine
    assert last == (
        "weft: stopped before verification ended; runs/small is unchanged; "
        "run the same command to start over"
    )
    assert all("step" in line for line in progress)


def test_the_generator_of_steps_raises_when_a_signal_stops_it() -> None:
    recipe = R.load_recipe("small.py")
    before = signal.getsignal(signal.SIGTERM)
    steps = []
    with pytest.raises(weft.RunStopped, match="stopped after step 3 of 6; run it again"):  # noqa: PT012 the loop is what is tested
        for event in weft.train(recipe, weft.prepare(recipe.data)):
            steps.append(event.step)
            if event.step == 3:
                os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before
    assert Path("runs/small/checkpoints/step-000000003").exists()
    assert [*steps, *(event.step for event in weft.train(recipe, weft.prepare(recipe.data)))] == [
        1,
        2,
        3,
        4,
        5,
        6,
    ]


def test_a_stopped_run_is_saved_prints_how_to_resume_and_resumes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    take = Trainer.train_step

    def ask(self: Trainer, *rest: object) -> object:
        if self.step == 3:
            signal.raise_signal(signal.SIGTERM)
        return take(self, *rest)  # type: ignore[arg-type]

    with monkeypatch.context() as inside:
        inside.setattr(Trainer, "train_step", ask)
        assert main(["train", "small.py"]) == EXIT_STOPPED
    assert "to resume: weft resume runs/small" in said(capsys)
    assert Path("runs/small/checkpoints/step-000000003").exists()
    assert main(["resume", "runs/small"]) == 0
    assert "resuming after step 3" in said(capsys)
    assert main(["train", "small.py", "--output", "runs/whole"]) == 0
    ends = [
        json.loads((Path(run) / "checkpoints/step-000000006/manifest.json").read_text())["files"][
            "model.safetensors"
        ]
        for run in ("runs/small", "runs/whole")
    ]
    assert ends[0] == ends[1]


def test_prepare_takes_a_recipe_or_files_and_parts_give_the_same(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["prepare", "small.py", "--output", "a"]) == 0
    assert "1,800 tokens" in said(capsys)
    assert main(["prepare", "small.py", "--output", "b", "--shard", "0/1"]) == 0
    assert Path("a/train/index.json").read_bytes() == Path("b/train/index.json").read_bytes()
    assert (
        main(["prepare", "text.txt", "--tokenizer", "characters", "--output", "c", "--json"]) == 0
    )
    found = capsys.readouterr().out
    assert json.loads(found[found.index("{") :])["splits"]["train"]["rows"] == 40


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["train", "nowhere.py"], "'nowhere.py' does not exist; give a Python file"),
        (["train", "small.py:nothing"], "available: tiny, other"),
        (["train", "small.py", "--set", "optimizer.rate=1"], "did you mean 'optimiser'"),
        (["train", "small.py", "--set", "steps=many"], "integer"),
        (["train", "small.py", "--set", "steps"], "path=value"),
        (
            ["train", "small.py", "--set", "model.decoder.blocks.9.attention.dropout=0.5"],
            "does not exist",
        ),
        (["train", "small.py", "--set", "batch.length=17"], "17"),
        (["train", "small.py", "--set", 'data.train.paths=["lost.txt"]'], "lost.txt"),
        (["train", "small.py", "--set", "model.source.vocab_size=7"], "7"),
        (["train", "broken.py"], "broken.py, line 2: ZeroDivisionError"),
        (["train", "other.json"], "other.json is not a recipe"),
        (["status", "nowhere"], "nowhere does not exist; give a run directory"),
        (["resume", "nowhere"], "nowhere does not exist"),
        (["resume", "small.py"], "small.py is not a directory; give a run directory"),
        (["resume", "."], ". is not a run directory: it has no recipe.json"),
        (["resume", "nowhere", "--verify"], "nowhere does not exist"),
        (
            ["train", "small.py", "--set", "steps=9", "--set", "optimiser.lr=-1"],
            "weft: --set optimiser.lr=-1: optimiser:",
        ),
        (
            ["train", "small.py", *(f"--set={w}" for w in ("steps=9", *CONFLICT, "seed=1"))],
            f"weft: --set {CONFLICT[0]} --set {CONFLICT[1]}: BestCheckpoint.metric = 'f1'",
        ),
        (
            ["evaluate", "runs/small", "text.txt"],
            "does not take 'text.txt'; give files with --data",
        ),
        (["prepare", "lost.txt"], "lost.txt"),
        (["prepare", "text.txt", "--shard", "1"], "I/N"),
        (
            ["prepare", "text.txt", "--shard", "3/2"],
            "(3, 2) is out of range; give an index from 0 to 1",
        ),
        (["prepare", "text.txt", "--rows", "paris"], "pairs"),
        (["prepare", "text.txt", "--tokenizer", "bpee"], "bpe"),
        (["train", "small.py", "--ou", "x"], "--output"),
    ],
)
def test_errors_are_one_line_with_a_fix(
    words: list[str], hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    # Progress is printed from the second second on, which a busy machine reaches.
    lines = capsys.readouterr().err.splitlines()
    errors = [line for line in lines if not line.startswith("weft: preparing")]
    assert len(errors) == 1
    assert errors[0].startswith("weft: ")
    assert hint in errors[0]


@pytest.mark.parametrize("verb", ["train", "prepare"])
@pytest.mark.parametrize("documented", [True, False])
def test_a_recipe_whose_data_are_missing_says_what_they_are(
    verb: str, documented: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    docstring = '"""A recipe.\n\nData:   any text.\n"""\n' if documented else ""
    Path("mine.py").write_text(docstring + RECIPE.replace("text.txt", "missing.txt"))
    assert main([verb, "mine.py:tiny"]) == 2
    error = capsys.readouterr().err
    assert "missing.txt does not exist" in error
    assert ("; the head of mine.py describes its data" in error) == documented


def test_a_caller_who_stops_asking_finds_the_step_saved() -> None:
    recipe = R.apply_overrides(R.load_recipe("small.py"), ["checkpoints.every_steps=100"])
    for event in whole_runs.train(recipe):
        if event.step == 3:
            break
    assert Path("runs/small/checkpoints/step-000000003").exists()
    assert next(iter(whole_runs.train(recipe))).step == 4


def test_a_run_goes_on_without_the_model_that_it_started_from() -> None:
    main(["train", "small.py"])
    recipe = R.apply_overrides(
        R.load_recipe("small.py"), ["name=tuned", "init_from=runs/small/model", "average=EMA"]
    )
    for event in whole_runs.train(recipe):
        if event.step == 2:
            break
    shutil.move("runs/small", "runs/moved")
    assert [event.step for event in whole_runs.train(recipe)] == [3, 4, 5, 6]
    with pytest.raises(ValueError, match="runs/small/model"):
        next(iter(whole_runs.train(recipe, "runs/fresh")))


def test_status_shows_the_loss_of_the_model_that_is_kept() -> None:
    list(whole_runs.train(R.apply_overrides(R.load_recipe("small.py"), ["average=EMA"])))
    lines = [json.loads(line) for line in Path("runs/small/log.jsonl").read_text().splitlines()]
    found = status.run_status(Path("runs/small"))
    assert (
        found["selected"]["loss"]
        == lines[-1]["averaged"]["loss"]
        != lines[-2]["valid"]["loss"]
        == found["valid_loss"]
    )


def test_the_load_of_experts_is_in_the_log_and_in_status(
    capsys: pytest.CaptureFixture[str],
) -> None:
    recipe = R.load_recipe("small.py")
    list(whole_runs.train(R.replace_path(recipe, "model", routed(recipe.model))))
    lines = [json.loads(line) for line in Path("runs/small/log.jsonl").read_text().splitlines()]
    assert all(
        0 < line["expert_load"]["entropy"] <= 1 and line["terms"]["balance"] > 0.9
        for line in lines
        if "loss" in line
    )
    assert lines[-1]["valid"].keys() == {"loss", "token", "balance", "router_z"}
    assert main(["status", "runs/small"]) == 0
    assert "load entropy" in capsys.readouterr().out


def test_another_teacher_is_refused() -> None:
    main(["train", "small.py"])
    main(["train", "small.py:other", "--set", "seed=1"])
    shutil.copytree("runs/small/model", "teacher")
    recipe = R.replace_path(
        R.apply_overrides(R.load_recipe("small.py"), ["name=pupil"]),
        "task",
        R.Distillation(teacher="teacher"),
    )
    for event in whole_runs.train(recipe):
        if event.step == 2:
            break
    shutil.copytree("runs/other/model", "teacher", dirs_exist_ok=True)
    with pytest.raises(ValueError, match="the teacher changed"):
        next(iter(whole_runs.train(recipe)))
