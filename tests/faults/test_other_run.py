"""A checkpoint, a recipe or log lines of another run in a run's folder: refused with the field that differs, or repaired."""
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import weft
from weft import cli, prove
from weft import recipe as R
from weft.train.checkpoint import Checkpoint, checkpoints, write

from .runs import BERT, STEPS, child, documents, gpt, partial_recipe, train
from .test_run_folder import held

FIELDS = {"seed": "seed was ", "rate": "optimiser.rate was ", "task": "model.", "optimiser": "optimiser.", "model": "model.", "first": ""}


def variants(data: R.Data) -> dict[str, R.Recipe]:
    """Runs on the same data that differ in one respect each."""
    first = partial_recipe(gpt(), R.NextToken(), data=data, save=R.Saves(every=3), steps=3)
    return {"first": first, "seed": replace(first, seed=1), "rate": replace(first, optimiser=R.AdamW(rate=1e-3)),
            "task": replace(first, model=weft.bert(**BERT), objective=R.MaskedTokens()),
            "optimiser": replace(first, optimiser=R.SGD(rate=3e-3)), "model": replace(first, model=gpt(width=32))}


class Runs:
    """Each variant after three of its steps."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.recipes = variants(documents(folder))
        for name, recipe in self.recipes.items():
            train(recipe, folder / name)
        self.recipes = {name: replace(recipe, steps=STEPS) for name, recipe in self.recipes.items()}

    def saved(self, name: str) -> Checkpoint:
        return checkpoints(self.folder / name / "checkpoints")[-1]

    def begun(self, name: str, out: Path) -> R.Recipe:
        """A run that is to go on for many steps more, with its one checkpoint."""
        found, recipe = self.saved(name), self.recipes[name]
        write(out / "checkpoints", 3, found.groups(), found.facts | {"recipe": recipe.json()})
        (out / "recipe.json").write_text(recipe.json())
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


@pytest.mark.parametrize("other", FIELDS)
@pytest.mark.parametrize("name", FIELDS)
def test_a_checkpoint_of_another_run_is_refused_with_the_field_that_differs(name: str, other: str, runs: Runs, tmp_path: Path) -> None:
    """Only the recipe file was compared; a checkpoint's own recipe was saved and never read. SGD's in AdamW's run was a KeyError."""
    if name == other:
        return
    recipe, found = runs.begun(name, tmp_path), runs.saved(other)
    write(tmp_path / "checkpoints", 4, found.groups(), found.facts | {"step": 4, "recipe": runs.recipes[other].json()})
    said = refused(recipe, tmp_path)
    assert "step-000000004 was saved with another recipe: " in said
    fields = [FIELDS[one] for one in (name, other) if FIELDS[one]]
    assert any(field in said for field in fields), said
    with pytest.raises(ValueError, match="was saved with another recipe"):
        prove.check(tmp_path)


@pytest.mark.parametrize("other", [name for name in FIELDS if name != "first"])
def test_a_recipe_file_that_was_edited_by_hand_is_refused_with_the_field_that_differs(
        other: str, runs: Runs, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs.begun("first", tmp_path)
    (tmp_path / "recipe.json").write_text(runs.recipes[other].json())
    for words in (["resume", str(tmp_path)], ["resume", str(tmp_path), "--check"], ["train", str(tmp_path)]):
        assert cli.main(words) == 2
        said = capsys.readouterr().err
        assert "step-000000003 was saved with another recipe: " in said
        assert FIELDS[other] in said


def test_a_foreign_checkpoint_among_those_that_are_averaged_is_refused(runs: Runs, tmp_path: Path) -> None:
    recipe = replace(runs.recipes["first"], average=R.Last(count=2), steps=6)
    assert isinstance(child(recipe, tmp_path / "run"), str)
    found = runs.saved("seed")
    write(tmp_path / "run" / "checkpoints", 3, found.groups(), found.facts)
    (tmp_path / "run" / "curve.svg").unlink()                  # not finished
    answer = child(recipe, tmp_path / "run")
    assert answer["error"] == "ValueError"
    assert "step-000000003 was saved with another recipe: " in answer["line"]


def test_a_checkpoint_without_a_recipe_is_refused(runs: Runs, tmp_path: Path) -> None:
    recipe, found = runs.begun("first", tmp_path), runs.saved("first")
    for wrong in (None, 3, "{}", "[]", '{"kind": "Rows", "count": 1, "length": 2}', "{"):
        write(tmp_path / "checkpoints", 4, found.groups(), found.facts | {"step": 4, "recipe": wrong})
        assert "step-000000004/state.json holds " in refused(recipe, tmp_path)
