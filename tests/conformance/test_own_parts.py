"""A format and a task of the user's own file, through every command and Python: new, train,
evaluate, classify, tune.
"""

import json
import os
from pathlib import Path

import pytest

from ..data.reading.test_table import OWN
from ..interpreter import run

CODE = ("--code", "own.py")
POSITIVE = ("great", "lovely", "superb")
NEGATIVE = ("awful", "boring", "poor")
PYTHON = """
import own
import weft

table = weft.open_table("films.arrows")
assert (table.format, table.columns) == ("arrows", ("text", "label"))
recipe = weft.suggest_recipe(table)
assert type(recipe.task) is own.Opinion
probabilities = weft.open("runs/mine").classify(["a lovely film"])[0]
print(max(probabilities, key=probabilities.get))
"""


def film(number: int) -> str:
    words, label = (POSITIVE, "pos") if number % 2 else (NEGATIVE, "neg")
    return f"a {words[number % 3]} film {number % 7} ==> {label}\n"


@pytest.mark.slow
def test_every_command_reads_a_format_and_a_task_of_a_users_file(tmp_path: Path) -> None:
    def weft(*words: str) -> str:
        done = run(tmp_path, os.environ, *words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "films.arrows").write_text("".join(map(film, range(80))) + "no label\n")
    weft("new", "films.arrows", "-o", "mine.py", *CODE)
    shorter = ("--set", "steps=30", "--set", "schedule.warmup_steps=2")
    weft("train", "mine.py", *shorter, *CODE)
    scores = json.loads(weft("evaluate", "runs/mine", "--data", "films.arrows", "--json", *CODE))
    assert scores["scores"]["accuracy"] == 1
    allowed = ("--max-bad-row-fraction", "0.1")
    weft("classify", "runs/mine", "-i", "films.arrows", "-o", "out.jsonl", *allowed, *CODE)
    answers = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert len(answers) == 80
    assert all(answer["prediction"] == answer["label"] for answer in answers)
    once = ("--learning-rates", "1e-3", "--seeds", "1", "--epochs", "1")
    weft("tune", "runs/mine", "--data", "films.arrows", *once, "-o", "runs/tuned", *CODE)
    recipe = json.loads((tmp_path / "runs/tuned/recipe.json").read_text())
    assert recipe["task"]["kind"] == "Opinion"
    assert weft("-c", PYTHON).strip() == "pos"


def test_an_unknown_choice_names_the_option_only_at_the_command_line() -> None:
    from weft.support.python_messages import in_python
    from weft.support.values import from_plain

    with pytest.raises(ValueError, match=r"unknown choice 'Unheard'.*--code FILE") as caught:
        from_plain({"kind": "Unheard"})
    assert "--code" not in in_python(str(caught.value))
