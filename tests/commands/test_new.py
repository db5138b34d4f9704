"""`weft new` writes a recipe for the user's own files that trains as it is."""

import json
import random
import shutil
import subprocess
from pathlib import Path

import pytest
from PIL import Image

import weft
from weft.cli import main

ROOT = Path(__file__).parents[2]
WORDS = ("good", "bad", "fine", "awful", "nice", "poor", "great", "dull", "film", "plot", "scene")


def sentence(rng: random.Random, words: int = 5) -> str:
    return " ".join(rng.choices(WORDS, k=words))


def write_data(rng: random.Random) -> None:
    labels = ["pos", "neg"] * 20
    rows = [f'"the {sentence(rng)}, it is",{label}' for label in labels]
    Path("reviews.csv").write_text("\n".join(["review,sentiment", *rows]))
    pairs = [f"{sentence(rng)}\t{sentence(rng).upper()}" for _ in range(40)]
    Path("pairs.tsv").write_text("\n".join(["en\tde", *pairs]))
    Path("text.txt").write_text("\n\n".join(sentence(rng, 30) for _ in range(100)))
    Path("images").mkdir()
    images, notes = [], []
    for i in range(12):
        Image.new("RGB", (64, 48), (20 * i, 0, 0)).save(f"images/{i}.png")
        images.append({"id": i, "file_name": f"{i}.png"})
        notes.append({"image_id": i, "category_id": i % 2, "bbox": [5, 5, 20, 20]})
    names = [{"id": 0, "name": "cat"}, {"id": 1, "name": "dog"}]
    table = {"images": images, "annotations": notes, "categories": names}
    Path("boxes.json").write_text(json.dumps(table))


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_data(random.Random(0))


@pytest.mark.parametrize(
    ("words", "guessed"),
    [
        (["classify", "reviews.csv"], {"text": "'review'", "label": "'sentiment', 2 classes: neg, pos"}),
        (["translate", "pairs.tsv"], {"pairs": "40 (tsv)"}),
        (["pretrain", "text.txt"], {"documents": "end at a blank line"}),
        (["detect", "boxes.json", "images"], {"classes": "2: cat, dog"}),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)  # fmt: skip
def test_the_written_recipe_says_what_was_guessed_is_formatted_and_trains(
    words: list[str], guessed: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["new", *words, "-o", "mine.py", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert guessed.items() <= summary["guessed"].items()
    assert "steps" in summary["guessed"]["cost"]
    text = Path("mine.py").read_text()
    assert all(f"{name}: {value}" in text for name, value in guessed.items())
    ruff = shutil.which("ruff")
    if ruff is not None:
        config = ["--config", str(ROOT / "pyproject.toml"), "--no-cache", "mine.py"]
        for check in (["format", "--check"], ["check"]):
            result = subprocess.run([ruff, *check, *config], capture_output=True, text=True)
            assert result.returncode == 0, result.stdout + result.stderr
    small = ["steps=2", "schedule.warmup_steps=1", "precision=fp32"]
    small += ["batch.tokens=64" if words[0] == "translate" else "batch.size=2"]
    recipe = weft.load_recipe("mine.py", small)
    assert [step.step for step in weft.train(recipe)] == [1, 2]
    assert summary["use"].split()[2] == f"runs/{recipe.name}"
    assert Path("runs", recipe.name, "model").is_dir()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["classify", "text.txt"], "neither a table"),
        (["classify", "pairs.tsv"], "label"),
        (["translate", "text.txt"], "two files with one sentence per line"),
        (["translate", "reviews.csv", "--columns", "review", "label"], "no column 'label'"),
        (["pretrain", "missing.txt"], "no file missing.txt"),
        (["detect", "boxes.json"], "the folder of the images"),
        (["pretrain", "boxes.json"], "which column is the text"),
        (["pretrain", "text.txt", "-o", "text.txt"], "a name with .py"),
    ],
)
def test_what_is_no_data_of_its_kind_is_refused_in_one_line_and_nothing_is_written(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["new", *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
    assert not Path("recipe.py").exists()


def test_a_recipe_is_never_overwritten(capsys: pytest.CaptureFixture[str]) -> None:
    Path("recipe.py").write_text("mine = 1\n")
    assert main(["new", "pretrain", "text.txt"]) == 2
    assert "is there already" in capsys.readouterr().err
    assert Path("recipe.py").read_text() == "mine = 1\n"
