"""`weft tune` runs the recipe that `weft new` writes, for every task, and suggestions need no
torch.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import weft
from tests.commands.test_tune import endings, pairs, squad, tagged
from tests.commands.tuned_data import checkpoint, sentences, write_examples
from weft import recipe as R
from weft.cli import main
from weft.commands.tune import plan_tuning
from weft.commands.tune_options import TuneOptions
from weft.data.preparing.prepare import prepare
from weft.families import families
from weft.suggest import suggest_recipe
from weft.suggest.recipe_code import code
from weft.suggest.suggestion import Budget


def test_a_recipe_is_suggested_without_torch(tmp_path: Path) -> None:
    data = write_examples(tmp_path / "train.jsonl", 60)
    lines = (
        "import sys, weft.suggest, weft",
        "assert 'torch' not in sys.modules",
        f"recipe = weft.suggest.suggest_recipe(weft.open_table([{str(data)!r}]))",
        "assert type(recipe.task).__name__ == 'Classification', recipe.task",
        "assert 'torch' not in sys.modules",
    )
    subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True, cwd=tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["train.jsonl"]


def test_the_code_of_a_spec_is_the_spec() -> None:
    names = {name: getattr(R, name) for name in R.__all__} | {"weft": weft}
    for family in families():
        for size in [*family.sizes][:1]:
            spec = family(size)
            assert eval(code(spec), names) == spec  # noqa: S307


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with its tokenizer."""
    folder: Path = tmp_path_factory.mktemp("start")
    text = R.Source(paths=(str(write_examples(folder / "text.jsonl", 4)),))
    data = R.Data(rows=R.LabelledTexts(), train=text, tokenizer=R.ByteTokenizer())
    prepare(data, folder / "prepared")
    model = checkpoint(folder / "model")
    shutil.copy(folder / "prepared" / "tokenizer.json", model / "tokenizer.json")
    return model


def numbers(path: Path) -> Path:
    rows = [f"{text},{len(text) / 7}" for text in sentences(40, 3)]
    path.write_text("text,score\n" + "\n".join(rows) + "\n")
    return path


def translations(path: Path) -> Path:
    rows = [f"{a}\t{b}" for a, b in zip(sentences(40, 1), sentences(40, 2), strict=True)]
    path.write_text("source\ttarget\n" + "\n".join(rows) + "\n")
    return path


MADE: dict[str, Callable[[Path], Path]] = {
    "classify": lambda folder: write_examples(folder / "train.jsonl", 60),
    "regress": lambda folder: numbers(folder / "numbers.csv"),
    "pair": lambda folder: pairs(folder / "pairs.tsv", False),
    "choose": lambda folder: endings(folder / "endings.jsonl"),
    "tag": lambda folder: tagged(folder / "tags.txt"),
    "answer": lambda folder: squad(folder / "squad.json"),
}

# What only a search sets: everything else of a recipe is the same
SEARCHED = ("name", "optimiser.lr", "data.prepared_folder", "precision")


def without_searched(recipe: R.Recipe) -> R.Recipe:
    plain: dict[str, Any] = {"name": "any", "precision": "auto"}
    data = replace(recipe.data, prepared_folder=None)
    optimiser = R.replace_path(recipe.optimiser, "lr", 1.0)
    assert {"name", "precision", "data.prepared_folder", "optimiser.lr"} == {*SEARCHED}
    return replace(recipe, data=data, optimiser=optimiser, **plain)


@pytest.mark.parametrize("task", MADE)
def test_tune_runs_the_recipe_that_new_writes(
    task: str, start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    data = str(MADE[task](tmp_path))
    words = ["new", task, data] if task in ("pair", "regress") else ["new", data]
    assert main([*words, "--from", str(start), "-o", "mine.py"]) == 0
    written = weft.load_recipe("mine.py")
    asked = task if task in ("pair", "regress") else None
    plan = plan_tuning(TuneOptions(str(start), (data,), output="searched", task=asked))
    assert without_searched(written) == without_searched(plan.recipe)
    assert written.optimiser.lr in plan.learning_rates
    assert without_searched(plan.trial_recipe(1e-3, 0)) == without_searched(written)
    ruff = shutil.which("ruff")
    if ruff is not None:
        config = str(Path(__file__).parents[2] / "pyproject.toml")
        for check in (["format", "--check"], ["check"]):
            command = [ruff, *check, "--config", config, "--no-cache", "mine.py"]
            done = subprocess.run(command, capture_output=True, text=True)
            assert done.returncode == 0, done.stdout + done.stderr
    small = weft.load_recipe("mine.py", ["steps=1", "schedule.warmup_steps=0", "precision=fp32"])
    assert [step.step for step in weft.train(small, weft.prepare(small.data))] == [1]


@pytest.mark.parametrize("task", [*MADE, "text2text", "similarity"])
def test_every_tunable_task_has_a_recipe_from_random_weights_that_trains(
    task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make = MADE.get("pair" if task == "similarity" else task)
    data = make(tmp_path) if make else translations(tmp_path / "both.tsv")
    assert {*R.tunable_names()} <= {*MADE, "text2text", "similarity"}
    assert main(["new", task, str(data), "-o", "mine.py"]) == 0
    batch = "batch.tokens=64" if task == "text2text" else "batch.size=2"
    small = ["steps=1", "schedule.warmup_steps=0", "precision=fp32", "eval_every=1", batch]
    recipe = weft.load_recipe("mine.py", small)
    assert [step.step for step in weft.train(recipe, weft.prepare(recipe.data))] == [1]
    valid = json.loads(Path("runs/mine/log.jsonl").read_text().splitlines()[-1]).get("valid")
    assert valid is None or "loss" in valid


def test_a_budget_sets_epochs_batches_and_lengths(start: Path, tmp_path: Path) -> None:
    table = weft.open_table([str(write_examples(tmp_path / "train.jsonl", 60))])
    recipe = suggest_recipe(table, checkpoint=str(start), budget=Budget(2, 6, 24, 1))
    assert (recipe.name, recipe.steps, recipe.eval_every) == ("train", 18, 9)
    assert recipe.batch == R.FixedBatch(size=6, length=24, sort_pool=192)
    scratch = suggest_recipe(table, "classify", budget=Budget(epochs=60, batch_size=10))
    assert (scratch.steps, scratch.init_from) == (360, None)


def test_a_checkpoint_is_for_a_task_of_tune(
    start: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = str(translations(tmp_path / "both.tsv"))
    for words, message in (
        (["translate", data, "--from", str(start)], "translate starts from random weights"),
        (["clasify", data], "classify"),
        (["classify", data, "--from", str(tmp_path / "none")], "none"),
    ):
        assert main(["new", *words]) == 2
        assert message in capsys.readouterr().err


def test_a_recipe_is_suggested_for_a_table_that_was_opened_without_a_task(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text("en,de\n" + "".join(f"a dog {i},ein Hund {i}\n" for i in range(40)))
    table = weft.open_table(str(path))
    assert isinstance(weft.suggest_recipe(table, "translate").task, R.Translation)
    with pytest.raises(ValueError, match="the JSON annotations"):
        weft.suggest_recipe(table, "detect")
    text = tmp_path / "text.txt"
    text.write_text("A line of text.\n\n" * 5000)
    assert (
        weft.suggest_recipe(weft.open_table(text, expected=R.Documents()), "pretrain").name
        == "text"
    )
    with pytest.raises(ValueError, match="paths is empty"):
        weft.open_table([])
