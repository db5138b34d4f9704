"""A checkpoint, a recipe or log lines of another run in a run's folder: refused with the field that
differs, or repaired.
"""

import errno
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

import weft
from tests import whole_runs
from weft import cli
from weft import recipe as R
from weft.runs.logs.log import read_log
from weft.training.checkpoints.checkpoint import Checkpoint, all_checkpoints, write

from .runs import BERT, STEPS, child, documents, gpt, partial_recipe, steps_of, train
from .test_run_folder import held

FIELDS = {
    "seed": "seed was ",
    "rate": "optimiser.lr was ",
    "task": "model.",
    "optimiser": "optimiser.",
    "model": "model.",
    "first": "",
}


def variants(data: R.Data) -> dict[str, R.Recipe]:
    """Runs on the same data that differ in one respect each."""
    first = partial_recipe(
        gpt(), R.CausalLM(), data=data, checkpoints=R.Checkpoints(every_steps=3), steps=3
    )
    return {
        "first": first,
        "seed": replace(first, seed=1),
        "rate": replace(first, optimiser=R.AdamW(lr=1e-3)),
        "task": replace(first, model=weft.bert(**BERT), task=R.MaskedLM()),
        "optimiser": replace(first, optimiser=R.SGD(lr=3e-3)),
        "model": replace(first, model=gpt(width=32)),
    }


class Runs:
    """Each variant after three of its steps."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.recipes = variants(documents(folder))
        for name, recipe in self.recipes.items():
            train(recipe, folder / name)
        self.whole = train(replace(self.recipes["first"], steps=6), folder / "whole")
        self.recipes = {name: replace(recipe, steps=STEPS) for name, recipe in self.recipes.items()}

    def saved(self, name: str) -> Checkpoint:
        return all_checkpoints(self.folder / name / "checkpoints")[-1]

    def begun(self, name: str, out: Path, steps: int = STEPS) -> R.Recipe:
        """A run that is to go on for some steps more, with its one checkpoint."""
        found = self.saved(name)
        recipe = replace(self.recipes[name], steps=steps)
        write(
            out / "checkpoints", 3, found.all_tensors(), found.state | {"recipe": recipe.to_json()}
        )
        (out / "recipe.json").write_text(recipe.to_json())
        shutil.copy(self.folder / name / "log.jsonl", out)
        return recipe


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("runs"))


def refused(recipe: R.Recipe, out: Path) -> str:
    """What a start is refused with; not one file but the lock has changed."""
    before = {name: digest for name, digest in held(out).items() if name != "lock"}
    with pytest.raises(ValueError) as error:
        train(recipe, out)
    assert {name: digest for name, digest in held(out).items() if name != "lock"} == before
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(("name", "other"), list(permutations(FIELDS, 2)))
def test_a_checkpoint_of_another_run_is_refused_with_the_field_that_differs(
    name: str, other: str, runs: Runs, tmp_path: Path
) -> None:
    """Only the recipe file was compared; a checkpoint's own recipe was saved and never read. SGD's
    in AdamW's run was a KeyError.
    """
    recipe = runs.begun(name, tmp_path)
    found = runs.saved(other)
    write(
        tmp_path / "checkpoints",
        4,
        found.all_tensors(),
        found.state | {"step": 4, "recipe": runs.recipes[other].to_json()},
    )
    said = refused(recipe, tmp_path)
    assert "step-000000004 was saved with a different recipe: " in said
    fields = [FIELDS[one] for one in (name, other) if FIELDS[one]]
    assert any(field in said for field in fields), said
    with pytest.raises(ValueError, match="was saved with a different recipe"):
        whole_runs.verify_resume(tmp_path)


@pytest.mark.parametrize("other", [name for name in FIELDS if name != "first"])
def test_a_recipe_file_that_was_edited_by_hand_is_refused_with_the_field_that_differs(
    other: str, runs: Runs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs.begun("first", tmp_path)
    (tmp_path / "recipe.json").write_text(runs.recipes[other].to_json())
    for words in (
        ["resume", str(tmp_path)],
        ["resume", str(tmp_path), "--verify"],
        ["train", str(tmp_path)],
    ):
        assert cli.main(words) == 2
        said = capsys.readouterr().err
        assert "step-000000003 was saved with a different recipe: " in said
        assert FIELDS[other] in said


def test_a_foreign_checkpoint_among_those_that_are_averaged_is_refused(
    runs: Runs, tmp_path: Path
) -> None:
    recipe = replace(runs.recipes["first"], average=R.AverageLast(checkpoints=2), steps=6)
    assert isinstance(child(recipe, tmp_path / "run"), str)
    found = runs.saved("seed")
    write(tmp_path / "run" / "checkpoints", 3, found.all_tensors(), found.state)
    (tmp_path / "run" / "curve.svg").unlink()  # not finished
    answer = child(recipe, tmp_path / "run")
    assert answer["error"] == "ValueError"
    assert "step-000000003 was saved with a different recipe: " in answer["line"]


def test_a_checkpoint_without_a_recipe_is_refused(runs: Runs, tmp_path: Path) -> None:
    recipe = runs.begun("first", tmp_path)
    found = runs.saved("first")
    for wrong in (None, 3, "{}", "[]", '{"kind": "FixedBatch", "size": 1, "length": 2}', "{"):
        write(
            tmp_path / "checkpoints",
            4,
            found.all_tensors(),
            found.state | {"step": 4, "recipe": wrong},
        )
        said = refused(recipe, tmp_path)
        assert "step-000000004/state.json has no readable recipe: " in said
        assert "weft train --output" in said


# The recipe file and the log

DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda b: b"",
    "half": lambda b: b[: len(b) // 2],
    "zeros": lambda b: bytes(len(b)),
    "not text": lambda b: b"\xff" + b,
    "another value": lambda b: b'{"kind": "Rows", "count": 1, "length": 2}',
    "a list": lambda b: b"[]",
}


@pytest.mark.parametrize("kind", [*DAMAGE, "missing"])
def test_a_damaged_recipe_file_is_restored_from_the_checkpoint_and_one_line_says_so(
    kind: str, runs: Runs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An empty recipe.json blocked `weft resume`, `weft status` and every use of the model."""
    recipe = replace(runs.recipes["first"], steps=6)
    out = tmp_path / "run"
    path = tmp_path / "run" / "recipe.json"
    for _ in zip(range(4), whole_runs.train(recipe, out), strict=False):
        pass
    good = path.read_bytes()
    path.unlink() if kind == "missing" else path.write_bytes(DAMAGE[kind](good))
    assert cli.main(["status", str(out)]) == 0
    said = capsys.readouterr().err
    assert "using the recipe of step-000000004" in said
    assert str(path) in said or kind == "missing"
    assert cli.main(["resume", str(out)]) == 0
    said = [line for line in capsys.readouterr().err.splitlines() if "recipe.json" in line]
    assert len(said) == 1
    assert said[0].startswith(f"weft: {path} ")
    assert said[0].endswith("; writing it again")
    assert path.read_bytes() == good
    assert train(recipe, out) == runs.whole


def test_a_recipe_file_that_was_edited_in_place_is_told_from_a_damaged_one(
    runs: Runs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = replace(runs.recipes["first"], steps=6)
    for _ in zip(range(4), whole_runs.train(recipe, tmp_path), strict=False):
        pass
    path = tmp_path / "recipe.json"
    good = (tmp_path / "recipe.json").read_text()
    path.write_text(good.replace('"seed": 0', '"seed": 1'))
    for words in (["resume", str(tmp_path)], ["status", str(tmp_path)], ["train", str(tmp_path)]):
        assert cli.main(words) == 2
        assert (
            f"{path} was changed after it was written: seed was 0 in step-000000004; undo the "
            "change" in capsys.readouterr().err
        )
    path.write_text(good.replace('"workers": 0', '"workers": 1'))  # may change, but not like this
    assert cli.main(["status", str(tmp_path)]) == 0
    assert (
        'if you edited it, delete its last field, "seal"; using the recipe of step-000000004'
        in capsys.readouterr().err
    )


FOREIGN = [
    b'{"step": 3, "lo',
    b"\xff\xfe\x00",
    b"null",
    b"[]",
    b"{}",
    b'{"step": "x", "loss": 1}',
    b'{"step": 2}',
    b'{"step": 2, "loss": "x"}',
    b'{"step": 2, "valid": 3}',
    b'{"step": 2, "valid": {"loss": []}}',
    b'{"event": "start"}',
    b"[" * 100_000,
    b"1" * 5_000,
]


@pytest.mark.parametrize("place", [0, 2, 3], ids=["begin", "middle", "end"])
def test_damaged_and_foreign_lines_in_the_log_never_block_a_run_and_are_named(
    place: int, runs: Runs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`cut` read every line back to the checkpoint as its own: one damaged line was a traceback."""
    runs.begun("first", tmp_path, steps=6)
    lines = (tmp_path / "log.jsonl").read_bytes().splitlines()[:3]
    (tmp_path / "log.jsonl").write_bytes(
        b"\n".join([*lines[:place], *FOREIGN, *lines[place:]]) + b"\n"
    )
    named = (
        f"log.jsonl, lines {', '.join(str(place + i + 1) for i in range(8))}, …: damaged, or "
        "not of this run; "
    )
    assert cli.main(["status", str(tmp_path)]) == 0
    assert f"{named}skipped" in capsys.readouterr().err
    assert cli.main(["resume", str(tmp_path)]) == 0
    assert named + ("removed" if place == 3 else "skipped") in capsys.readouterr().err
    assert steps_of(tmp_path) == [1, 2, 3, 4, 5, 6]
    assert (tmp_path / "curve.svg").exists()


def test_lines_of_another_run_after_the_checkpoint_are_removed(runs: Runs, tmp_path: Path) -> None:
    recipe = runs.begun("first", tmp_path)
    with (tmp_path / "log.jsonl").open("a") as log:
        log.writelines(
            json.dumps({"step": step, "loss": 9.0, "seconds": 1.0, "tokens": 1}) + "\n"
            for step in range(40, 60)
        )
    child(recipe, tmp_path)
    assert steps_of(tmp_path) == list(range(1, STEPS + 1))
    assert all(line.get("loss") != 9.0 for line in read_log(tmp_path / "log.jsonl"))


# On the disk


def files_of(out: Path) -> list[Path]:
    return [out / "recipe.json", out / "log.jsonl", out / "curve.svg", *(out / "model").iterdir()]


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_the_files_of_a_run_are_as_readable_as_any_other(
    mask: int, runs: Runs, tmp_path: Path
) -> None:
    before = os.umask(mask)
    try:
        train(replace(runs.recipes["first"], steps=3), tmp_path / "run")
    finally:
        os.umask(before)
    for path in files_of(tmp_path / "run"):
        assert path.stat().st_mode & 0o777 == 0o666 & ~mask, path


def test_recipe_log_and_model_are_on_the_disk_when_a_run_is_finished(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: dict[int, int] = {}  # by inode: how many bytes were there
    fsync = os.fsync

    def note(file: Any) -> None:
        stat = os.fstat(file if isinstance(file, int) else file.fileno())
        synced[stat.st_ino] = stat.st_size
        fsync(file)

    monkeypatch.setattr(os, "fsync", note)
    train(replace(runs.recipes["first"], steps=3), tmp_path / "run")
    for path in files_of(tmp_path / "run"):
        assert synced.get(path.stat().st_ino) == path.stat().st_size, path
    for folder in (tmp_path / "run", tmp_path / "run" / "model"):
        assert folder.stat().st_ino in synced


@pytest.mark.parametrize("name", ["recipe.json", "log.jsonl"])
def test_a_full_disk_at_the_recipe_or_the_log_names_the_path(
    name: str, runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write's own error names no file."""

    def full(*given: Any, **more: Any) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def fsync(file: Any) -> None:
        number = file.fileno() if hasattr(file, "fileno") else file
        if Path(f"/proc/self/fd/{number}").resolve().name == name:
            full()

    if name == "log.jsonl":
        monkeypatch.setattr("os.fsync", fsync)
    else:
        monkeypatch.setattr("weft.support.storage.rename", full)
    with pytest.raises(
        OSError,
        match=rf"cannot write {tmp_path}/run/{name}: No space left on device; free some space",
    ) as error:
        train(runs.recipes["first"], tmp_path / "run")
    assert error.value.errno == errno.ENOSPC
    assert not list((tmp_path / "run").glob(".*.tmp"))
