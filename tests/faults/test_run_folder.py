"""Changes to a run directory or its data between two starts are rejected or ignored with a clear
message, and no file is damaged.
"""

import json
import os
import shutil
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests import whole_runs
from weft import cli
from weft import recipe as R
from weft import spec as S
from weft.data.preparing.prepare import prepare
from weft.runs import run
from weft.runs.directory import RunDirectory
from weft.runs.logs.log import is_finished
from weft.training.checkpoints import compatibility
from weft.training.checkpoints.checkpoint import Checkpoint, all_checkpoints, read, write

from .runs import (
    Whole,
    after_save,
    at_step,
    child,
    documents,
    gpt,
    partial_recipe,
    steps_of,
    train,
    whole,
    write_text,
)
from .test_checkpoint_folder import read_only

__all__ = ["whole"]


def own(folder: Path, **more: Any) -> R.Recipe:
    """A quick run on data of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    return partial_recipe(
        gpt(),
        R.CausalLM(),
        data=documents(folder),
        **{"steps": 8, "checkpoints": R.Checkpoints(every_steps=3), **more},
    )


def held(folder: Path) -> dict[str, str]:
    return {
        str(p.relative_to(folder)): sha256(p.read_bytes()).hexdigest()
        for p in sorted(folder.rglob("*"))
        if p.is_file()
    }


@pytest.fixture
def begun(tmp_path: Path) -> tuple[R.Recipe, Path]:
    """A run that died after its first save."""
    recipe = own(tmp_path / "data")
    out = tmp_path / "run"
    assert child(recipe, out, after_save(out, 3, 5)) is None
    assert all_checkpoints(out / "checkpoints")
    return recipe, out


def refused(recipe: R.Recipe, out: Path) -> str:
    """What a start is refused with; the checkpoints are as before."""
    before = held(out / "checkpoints")
    answer = child(recipe, out)
    assert isinstance(answer, dict), answer
    assert answer["error"] == "ValueError"
    assert "\n" not in answer["line"]
    assert held(out / "checkpoints") == before
    line: str = answer["line"]
    return line


# Data


@pytest.mark.parametrize("folder", [True, False], ids=["in one folder", "by fingerprint"])
def test_a_source_that_changed_between_two_starts_is_refused(
    folder: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    recipe = own(tmp_path / "data")
    out = tmp_path / "run"
    recipe = recipe if folder else replace(recipe, data=replace(recipe.data, prepared_folder=None))
    assert child(recipe, out, after_save(out, 3, 5)) is None
    before = (tmp_path / "data" / "train.txt").read_bytes()
    write_text(tmp_path / "data" / "train.txt", 40, seed=7)
    shards = (
        {
            path: path.read_bytes()
            for path in Path(recipe.data.prepared_folder).rglob("*")
            if path.is_file()
        }
        if recipe.data.prepared_folder
        else {}
    )
    said = refused(recipe, out)
    assert (
        "contains prepared data of other files or settings"
        if folder
        else "the data changed since this run began"
    ) in said
    assert (
        "give another directory"
        if folder
        else "restore the old data, or start another run with --output"
    ) in said
    # refused before the run's shards were written over
    assert all(path.read_bytes() == held for path, held in shards.items())
    (tmp_path / "data" / "train.txt").write_bytes(before)  # and with it, the run goes on
    assert isinstance(child(recipe, out), str)


def test_prepared_shards_of_other_text_are_refused(
    begun: tuple[R.Recipe, Path], tmp_path: Path
) -> None:
    recipe, out = begun
    other = own(tmp_path / "other")
    write_text(tmp_path / "other" / "train.txt", 40, seed=3)
    prepare(other.data)
    assert recipe.data.prepared_folder
    assert other.data.prepared_folder
    shutil.rmtree(recipe.data.prepared_folder)
    shutil.copytree(other.data.prepared_folder, recipe.data.prepared_folder)
    write_text(tmp_path / "data" / "train.txt", 40, seed=3)
    assert "the data changed since this run began" in refused(recipe, out)


# The recipe

CHANGES: dict[str, tuple[str, dict[str, Any]]] = {
    "rate": ("optimiser.lr was 0.003", {"optimiser": R.AdamW(lr=1e-3)}),
    "optimiser": ("optimiser", {"optimiser": R.SGD(lr=3e-3)}),
    "steps": ("steps was 8", {"steps": 9}),
    "seed": ("seed was 0", {"seed": 1}),
    "rows": ("batch.size was 7", {"batch": R.FixedBatch(size=8, length=32)}),
    "clip": ("grad_clip was 1.0", {"grad_clip": None}),
    "average": ("average", {"average": R.EMA()}),
    "precision": ("precision", {"precision": "bf16"}),
    "schedule": ("schedule", {"schedule": R.CosineSchedule(warmup_steps=3)}),
    "spike": ("guard.spike_deviations was None", {"guard": R.LossGuard(spike_deviations=3.0)}),
    "objective": ("task.isolate_documents was False", {"task": R.CausalLM(isolate_documents=True)}),
    "model": ("dropout", {"model": S.with_dropout(gpt(), 0.2)}),
    "lengths": ("length_schedule", {"length_schedule": ((0.5, 16), (1.0, 32))}),
}


def saved(root: Path, recipe: R.Recipe, step: int) -> Checkpoint:
    return read(write(root, step, {}, {"recipe": recipe.to_json()}))


def test_every_change_of_a_recipe_that_would_change_the_result_is_refused_by_name(
    tmp_path: Path,
) -> None:
    recipe = own(tmp_path / "data")
    found = saved(tmp_path, recipe, 6)
    for word, change in CHANGES.values():
        with pytest.raises(
            ValueError, match="step-000000006 was saved with a different recipe"
        ) as error:
            compatibility.refuse_other(found, replace(recipe, **change))
        assert word in str(error.value)
        assert "undo the change, or start a new run with weft train --output FOLDER" in str(
            error.value
        )


def test_resume_refuses_another_precision_and_writes_nothing(
    begun: tuple[R.Recipe, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    recipe, out = begun
    before = held(out)
    assert recipe.precision == "fp32"
    assert cli.main(["resume", str(out), "--precision", "bf16"]) == 2
    assert "was started with precision = 'fp32'" in capsys.readouterr().err
    assert cli.main(["resume", str(out), "--verify", "--precision", "fp32"]) == 2
    assert "remove --precision" in capsys.readouterr().err
    assert held(out) == before


def test_a_finished_run_without_checkpoints_is_not_trained_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What weft tune leaves."""
    recipe = own(tmp_path / "data")
    out = tmp_path / "run"
    for _ in whole_runs.train(recipe, out):
        pass
    shutil.rmtree(out / "checkpoints")
    before = held(out)
    assert cli.main(["resume", str(out)]) == 0
    assert "finished" in capsys.readouterr().out
    assert held(out) == before


def test_what_may_change_between_two_starts_may(
    whole: Whole, begun: tuple[R.Recipe, Path], tmp_path: Path
) -> None:
    recipe, out = begun
    free = replace(
        recipe,
        workers=1,
        activation_checkpointing=True,
        eval_every=2,
        checkpoints=R.Checkpoints(every_steps=2, keep=5),
        guard=R.LossGuard(max_skipped_steps=9),
        paper="one",
    )
    assert {
        "micro_batch_size",
        "compile",
        "workers",
        "activation_checkpointing",
        "eval_every",
        "checkpoints.every_steps",
        "checkpoints.keep",
        "checkpoints.copy_to",
        "guard.max_skipped_steps",
        "paper",
        "data.max_bad_row_fraction",
        "timeouts.collective",
        "timeouts.heartbeat",
        "threads",
        "device",
    } == compatibility.CHANGEABLE_FIELDS
    assert child(free, out) == child(recipe, tmp_path / "plain")  # not one bit of it is seen
    compatibility.refuse_other(
        all_checkpoints(out / "checkpoints")[-1], replace(recipe, micro_batch_size=2, compile=True)
    )


def test_where_checkpoints_are_averaged_the_steps_of_saves_may_not_change(tmp_path: Path) -> None:
    recipe = own(tmp_path / "data", average=R.AverageLast(checkpoints=2))
    with pytest.raises(ValueError, match=r"checkpoints\.every_steps was 3"):
        compatibility.refuse_other(
            saved(tmp_path, recipe, 3), replace(recipe, checkpoints=R.Checkpoints(every_steps=2))
        )


def test_a_recipe_may_change_as_long_as_nothing_is_saved(tmp_path: Path) -> None:
    recipe = own(tmp_path / "data")
    out = tmp_path / "run"
    assert child(recipe, out, at_step(2)) is None
    assert isinstance(child(replace(recipe, seed=5), out), str)
    assert R.recipe_of_run(out).seed == 5


def test_another_spelling_of_the_same_files_and_folders_is_the_same_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = own(tmp_path / "data", average=R.EMA(decay=0.5))
    out = tmp_path / "run"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path / "data")
    assert child(recipe, out, after_save(out, 3, 5)) is None
    found = all_checkpoints(out / "checkpoints")[-1]
    for base in ("data", "./data/../data", "link"):
        spelt = R.apply_overrides(
            recipe,
            [f'data.{name}.paths=["{base}/{name}.txt"]' for name in ("train", "valid")]
            + [f"data.prepared_folder={base}/documents"],
        )
        compatibility.refuse_other(found, spelt)
        RunDirectory("run").store(spelt, print)
        assert R.recipe_of_run(out) == spelt  # shown as it was typed last
    monkeypatch.setenv("WEFT_DATA", str(tmp_path / "data"))
    short = R.apply_overrides(
        recipe, ['data.train.paths=["train.txt"]', 'data.valid.paths=["valid.txt"]']
    )
    assert child(short, Path("run")) == child(recipe, tmp_path / "plain")
    (tmp_path / "other").mkdir()
    shutil.copy(tmp_path / "data" / "train.txt", tmp_path / "other")
    with pytest.raises(ValueError, match=r"data\.train\.paths\.0 was 'train.txt'"):
        compatibility.refuse_other(
            all_checkpoints(out / "checkpoints")[-1],
            R.apply_overrides(recipe, ['data.train.paths=["other/train.txt"]']),
        )


def test_a_length_that_does_not_fit_is_refused_before_the_first_step(tmp_path: Path) -> None:
    recipe = own(tmp_path / "data")  # 32 positions
    for lengths, batch in (
        (((0.5, 16), (1.0, 48)), R.FixedBatch(size=7, length=32)),
        (((1.0, 16),), R.FixedBatch(size=7, length=48)),
    ):
        with pytest.raises(ValueError, match="length = 48: the model has 32 learned positions"):
            whole_runs.build_run(replace(recipe, length_schedule=lengths, batch=batch))
    with pytest.raises(ValueError, match="less than one window of"):
        whole_runs.build_run(
            replace(
                recipe,
                length_schedule=((0.5, 16), (1.0, 9999)),
                model=replace(recipe.model, source=S.Tokens(vocab_size=269)),
            )
        )
    narrow = R.apply_overrides(
        recipe,
        ["model.decoder.blocks.*.attention.inner.rope=RoPE", "model.source.positions=null"],
    )
    assert whole_runs.build_run(replace(narrow, length_schedule=((0.5, 16), (1.0, 48))))


# Two trainers, a folder that cannot be written, strangers in it


def test_a_second_trainer_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    recipe = own(tmp_path / "data")
    out = tmp_path / "run"
    answers = []

    def plot(made: run.Run, event: Any) -> None:
        if event and event.step == 5:
            before = (out / "recipe.json").read_bytes()
            answers.append(refused_here(replace(recipe, workers=1), out))
            assert (out / "recipe.json").read_bytes() == before

    train(recipe, out, plot)
    assert f"{out} is being trained by process {os.getpid()}" in answers[0]
    assert steps_of(out) == list(range(1, 9))


def refused_here(recipe: R.Recipe, out: Path) -> str:
    with pytest.raises(ValueError) as error:
        train(recipe, out)
    return str(error.value)


def test_a_folder_that_cannot_be_written_is_named_before_anything_is_done(tmp_path: Path) -> None:
    recipe = own(tmp_path / "data")
    with read_only() as folder:
        for out in (folder, folder / "inner"):
            said = refused_here(recipe, out)
            assert said.startswith(f"{out} is not writable: Permission denied; give ")
    assert not (tmp_path / "data" / "documents").exists()


def test_strays_in_checkpoints_log_and_folder_are_ignored(
    begun: tuple[R.Recipe, Path], tmp_path: Path
) -> None:
    recipe, out = begun
    (out / "checkpoints" / ".new-step-000000099").mkdir()
    (out / "checkpoints" / ".new-step-000000099" / "model.safetensors").write_bytes(b"half")
    (out / "checkpoints" / ".trash-step-000000001").mkdir()
    (out / "checkpoints" / "notes.txt").write_text("mine")
    (out / "recipe.new").write_text("half a rec")
    (out / ".curve.svg").write_text("<sv")
    with (out / "log.jsonl").open("a") as log:
        log.write('{"step": 6, "loss": 1.0, "ter')
    assert child(recipe, out) == child(recipe, tmp_path / "plain")
    assert steps_of(out) == list(range(1, 9))
    assert not list((out / "checkpoints").glob(".*"))
    assert (out / "checkpoints" / "notes.txt").read_text() == "mine"


def test_a_damaged_newest_checkpoint_costs_its_interval_and_nothing_else(
    begun: tuple[R.Recipe, Path], tmp_path: Path
) -> None:
    recipe, out = begun
    assert child(recipe, out, after_save(out, 6, 7)) is None
    last = all_checkpoints(out / "checkpoints")[-1]
    assert last.step == 6
    (last.path / "model.safetensors").write_bytes(
        (last.path / "model.safetensors").read_bytes()[:-1]
    )
    assert child(recipe, out) == child(recipe, tmp_path / "plain")
    said = out.with_suffix(".out").read_text()
    assert "step-000000006/model.safetensors is damaged" in said
    assert "resuming after step 3" in said
    assert steps_of(out) == list(range(1, 9))


# The log and the end


@pytest.mark.parametrize("kill", [1, 6])
def test_the_log_holds_every_step_once_in_order_wherever_the_run_was_killed(
    kill: int, tmp_path: Path
) -> None:
    recipe = own(tmp_path / "data", eval_every=2)
    out = tmp_path / "run"
    assert child(recipe, out, at_step(kill)) is None
    assert isinstance(child(recipe, out), str)
    assert steps_of(out) == list(range(1, 9))
    valid = [
        json.loads(line)["step"]
        for line in (out / "log.jsonl").read_text().splitlines()
        if '"valid"' in line
    ]
    assert valid == [2, 4, 6, 8]


def test_a_finished_run_is_reported_and_unchanged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = own(tmp_path / "data", average=R.AverageLast(checkpoints=2))
    out = tmp_path / "run"
    file = tmp_path / "recipe.json"
    file.write_text(recipe.to_json())
    assert isinstance(child(recipe, out), str)
    assert is_finished(out)
    before = held(out)
    assert cli.main(["train", str(file), "--output", str(out)]) == 0
    said = capsys.readouterr()
    assert f"{out} is finished after 8 steps" in said.err
    assert "finished" in said.out
    assert {name: digest for name, digest in held(out).items() if name != "lock"} == {
        name: digest for name, digest in before.items() if name != "lock"
    }


# Proof


@pytest.mark.parametrize("what", ["a weight", "a moment", "a counter", "the numbers of chance"])
def test_a_run_that_does_not_repeat_is_found_by_its_check(
    what: str, begun: tuple[R.Recipe, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    recipe, out = begun
    assert isinstance(child(recipe, out), str)
    last = read(out / "checkpoints" / "step-000000008")
    groups = last.all_tensors()
    facts = last.state
    if what == "a weight":
        next(iter(groups["model"].values())).view(-1)[3] += 1e-7
    elif what == "a moment":
        next(t for n, t in groups["optimiser"].items() if n.endswith("exp_avg_sq")).view(-1)[0] *= (
            1.0001
        )
    elif what == "a counter":
        facts["tokens"] += 1
    else:
        groups["rng"]["torch"][24] ^= 1
    write(out / "checkpoints", 8, groups, facts)  # its manifest vouches for it
    assert cli.main(["resume", str(out), "--verify"]) == 1
    assert "NOT identical" in capsys.readouterr().out


def test_a_check_needs_a_run_with_a_checkpoint_and_one_rank(
    begun: tuple[R.Recipe, Path], tmp_path: Path
) -> None:
    _, out = begun
    with pytest.raises(ValueError, match="is not a run directory"):
        whole_runs.verify_resume(tmp_path)
    last = all_checkpoints(out / "checkpoints")[-1]
    write(out / "checkpoints", 4, last.all_tensors(), {**last.state, "world": 2})
    with pytest.raises(ValueError, match="was trained by 2 ranks"):
        whole_runs.verify_resume(out)
    shutil.rmtree(out / "checkpoints")
    with pytest.raises(ValueError, match="has no undamaged checkpoint"):
        whole_runs.verify_resume(out)
