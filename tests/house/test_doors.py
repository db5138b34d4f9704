"""Counting doors: a new task, and a new metric, change at most two source files and one test."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from weft.recipe import Task
from weft.registry import members

ROOT = Path(__file__).parents[2]

VALUE = '''

@choice
class Reversal(Translation):
    """Write the source backwards."""

    name = "reverse"
    metrics = ("whole_rows",)


implements(Reversal, "weft.tasks.reversal:ReversalTask")
'''
IMPLEMENTATION = '''"""Write the source backwards."""

from collections.abc import Sequence
from typing import Any

from .task import HiddenTokenTask, Metrics
from .translation import TranslationLoss, TranslationPreprocess


class ReversalPreprocess(TranslationPreprocess):
    def read(self, store: Any, length: int, tail: bool) -> Any:
        return Backwards(super().read(store, length, tail))


class Backwards:
    def __init__(self, samples: Any) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, i: int) -> dict[str, Any]:
        source = self.samples[i]["source"]
        return {"source": source, "target": source[::-1]}

    def lengths(self, indices: Any) -> Any:
        return self.samples.lengths(indices)


class ReversalTask(HiddenTokenTask):
    preprocess_class, loss_class = ReversalPreprocess, TranslationLoss

    def evaluate(self, predictions: Sequence[Any], references: Sequence[Any]) -> Metrics:
        yield "whole_rows", sum(all(hit for _, hit in row) for row in predictions) / len(predictions)
'''
TEST = """
import weft
from tests.evaluate.small import TEXTS
from weft import recipe as R
from weft.testing import check_task, small_store


def test_the_new_task_keeps_the_contract() -> None:
    assert "reverse" in R.task_names()
    rows = [{"source": text, "target": text} for text in TEXTS]
    store, tokenizer = small_store(rows, R.SourceTargetPairs())
    model = weft.transformer(depth=1, width=16, heads=2, hidden=32, vocab_size=tokenizer.size, dropout=0.0)
    check_task(R.Reversal(), model, store)
"""
METRIC = '''"""How often the first token is right."""

from collections.abc import Iterator, Sequence
from typing import Any


def first_token_accuracy(predictions: Sequence[Any]) -> Iterator[tuple[str, float]]:
    yield "first_token", sum(row[0][1] for row in predictions) / len(predictions)
'''


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("copy")
    for name in ("src", "tests"):
        unwanted = shutil.ignore_patterns("__pycache__", "golden*")
        shutil.copytree(ROOT / name, folder / name, ignore=unwanted)
    return folder


def files(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*.py")}


def edit(folder: Path, name: str, old: str, new: str) -> None:
    path = folder / name
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))


def changed(before: dict[str, str], after: dict[str, str]) -> tuple[int, int]:
    """How many source files and tests changed or are new."""
    names = [name for name in after if after[name] != before.get(name)]
    sources = sum(name.startswith("src") for name in names)
    return sources, len(names) - sources


def passes(folder: Path) -> bool:
    environment = os.environ | {"PYTHONPATH": str(folder / "src")}
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "tests/test_reversal.py",
    ]
    done = subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    return done.returncode == 0


def test_a_new_task_and_then_a_new_metric_change_two_source_files_and_one_test_each(
    copy: Path,
) -> None:
    before = files(copy)
    with (copy / "src/weft/recipe/tasks.py").open("a") as file:
        file.write(VALUE)
    edit(
        copy,
        "src/weft/recipe/tasks.py",
        '    "Regression",\n',
        '    "Regression",\n    "Reversal",\n',
    )
    (copy / "tests/test_reversal.py").write_text(TEST)
    assert not passes(copy)  # the value alone is not enough, so the test can fail
    (copy / "src/weft/tasks/reversal.py").write_text(IMPLEMENTATION)
    assert passes(copy)
    with_task = files(copy)
    assert changed(before, with_task) == (2, 1)

    reversal = "src/weft/tasks/reversal.py"
    edit(copy, "src/weft/recipe/tasks.py", '("whole_rows",)', '("whole_rows", "first_token")')
    assert not passes(copy)  # a metric that is named, but not yielded
    edit(copy, "src/weft/recipe/tasks.py", '("whole_rows", "first_token")', '("whole_rows",)')
    (copy / "src/weft/metrics/first_token.py").write_text(METRIC)
    edit(
        copy,
        reversal,
        "from .task import",
        "from ..metrics.first_token import first_token_accuracy\nfrom .task import",
    )
    edit(
        copy,
        reversal,
        '        yield "whole_rows"',
        '        yield from first_token_accuracy(predictions)\n        yield "whole_rows"',
    )
    edit(
        copy,
        "tests/test_reversal.py",
        "    check_task(",
        '    from weft.metrics.first_token import first_token_accuracy\n\n    assert dict(first_token_accuracy([[(0.1, 1.0)], [(0.1, 0.0)]])) == {"first_token": 0.5}\n    check_task(',
    )
    assert passes(copy)
    assert changed(with_task, files(copy)) == (2, 1)


TASKS = "|".join(task.__name__ for task in members(Task))
SHARED_ROOMS = ("training", "runs", "tuning", "commands")
# what serves some tasks only, and why
SERVES_SOME = dict.fromkeys(
    ("commands/guess.py", "commands/guess_images.py"),
    "the first recipe of `weft new`, one per kind of data",
)


@pytest.mark.parametrize(
    "path",
    [path for room in SHARED_ROOMS for path in sorted((ROOT / "src/weft" / room).glob("*.py"))],
    ids=lambda path: f"{path.parent.name}/{path.name}",
)
def test_what_serves_every_task_names_none(path: Path) -> None:
    """A task's value says what is special about it, so that a user's own task is served alike."""
    found = re.findall(rf"\b(?:R|recipe)\.({TASKS}|PairTask)\b", path.read_text())
    assert bool(found) == (f"{path.parent.name}/{path.name}" in SERVES_SOME), found
