"""Extension points: the number of files that change for a new task and a new metric."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from weft.recipe import Task
from weft.support.registry import members

ROOT = Path(__file__).parents[2]

VALUE = '''"""The source backwards."""

from ...support.registry import choice, implements
from .translation import Translation


@choice
class Reversal(Translation):
    """Write the source backwards."""

    name = "reverse"
    metrics = ("accuracy",)


implements(Reversal, "weft.tasks.reversal:ReversalTask")
'''
IMPLEMENTATION = '''"""Write the source backwards."""

from collections.abc import Sequence
from typing import Any

from ..recipe.metrics import find_metric
from .base import Batch
from .predict import split_by_row
from .task import EvaluationData, HiddenTokenTask, Metrics
from .translation import TranslationLoss, TranslationPreprocess


class ReversalPreprocess(TranslationPreprocess):
    def read_samples(self, store: Any, length: int, include_partial: bool) -> Any:
        return Backwards(super().read_samples(store, length, include_partial))


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
    preprocess_class = ReversalPreprocess
    loss_class = TranslationLoss

    def predict(self, outputs: Any, batch: Batch) -> list[Any]:
        return split_by_row(outputs.argmax(-1), batch)

    def references(self, data: EvaluationData) -> list[list[int]]:
        rows = (data.store.row(i)["source"].tolist() for i in range(len(data.store)))
        return [[*reversed(row), self.preprocess.eos_id] for row in rows]

    def evaluate(self, predictions: Sequence[Any], references: Sequence[Any]) -> Metrics:
        for name in self.task.metrics:
            yield from find_metric(name)(predictions, references)
'''
TEST = """
import numpy as np

import weft
from tests.inference.small import TEXTS
from weft import recipe as R
from weft.tasks import build_task
from weft.tasks.task import EvaluationData
from weft.testing import check_metric, check_task, small_store

ROWS = [{"source": text, "target": text} for text in TEXTS]
STORE, TOKENIZER = small_store(ROWS, R.SourceTargetPairs())
MODEL = weft.transformer(
    depth=1, width=16, heads=2, hidden=32, vocab_size=TOKENIZER.size, dropout=0.0
)


def test_the_new_task_keeps_the_contract() -> None:
    assert "reverse" in R.task_names()
    check_task(R.Reversal(), MODEL, STORE)


def test_the_model_learns_the_source_backwards() -> None:
    task = build_task(R.Reversal(), MODEL, STORE.meta, seed=1)
    samples = task.preprocess.open_samples(STORE, 64, include_partial=True)
    references = task.references(EvaluationData(STORE, None))
    assert len(samples) == len(references) == len(TEXTS)
    for i, reference in enumerate(references):
        row = task.preprocess(samples, i, np.random.default_rng(0))
        source = row["tokens"][:-1].tolist()
        assert source != source[::-1]
        assert row["labels"][:-1].tolist() == source[::-1]
        assert row["labels"].tolist() == reference
"""
METRIC = '''"""How often the first token is right."""

from collections.abc import Sequence
from typing import Any

from ..recipe.metrics import Scores
from .rows import check_pairs


def first_token(predictions: Sequence[Any], references: Sequence[Any]) -> Scores:
    check_pairs(predictions, references)
    right = [p[0] == r[0] for p, r in zip(predictions, references, strict=True)]
    yield "first_token", sum(right) / len(right)
'''
METRIC_TEST = """

def test_the_task_scores_the_first_token() -> None:
    predictions = [[4, 5], [6, 7]]
    references = [[4, 8], [9, 7]]
    check_metric("first_token", predictions, references)
    task = build_task(R.Reversal(), MODEL, STORE.meta, seed=1)
    assert dict(task.evaluate(predictions, references))["first_token"] == 0.5
"""
KEEPS_CONTRACT = "test_the_new_task_keeps_the_contract"
LEARNS_BACKWARDS = "test_the_model_learns_the_source_backwards"
SCORES_FIRST_TOKEN = "test_the_task_scores_the_first_token"


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


def failures(folder: Path) -> list[str]:
    """Run the tests of the new task and return the names of those that fail."""
    environment = os.environ | {"PYTHONPATH": str(folder / "src")}
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rf"]
    done = subprocess.run(
        [*words, "tests/test_reversal.py"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return sorted(re.findall(r"^FAILED \S+::(\w+)", done.stdout, re.MULTILINE))


def test_a_new_task_and_a_new_metric_change_three_source_files(copy: Path) -> None:
    before = files(copy)
    tasks = "src/weft/recipe/tasks/__init__.py"
    value = "src/weft/recipe/tasks/reversal.py"
    (copy / value).write_text(VALUE)
    last = "from .reward_modelling import RewardModelling\n"
    edit(copy, tasks, last, f"{last}from .reversal import Reversal\n")
    edit(copy, tasks, '    "Regression",\n', '    "Regression",\n    "Reversal",\n')
    test = copy / "tests/test_reversal.py"
    test.write_text(TEST)
    (copy / "src/weft/tasks/reversal.py").write_text(IMPLEMENTATION)
    with_task = files(copy)
    assert changed(before, with_task) == (3, 1)

    (copy / "src/weft/metrics/first_token.py").write_text(METRIC)
    edit(
        copy,
        "src/weft/recipe/metrics.py",
        '    "pearson": ',
        '    "first_token": "first_token:first_token",\n    "pearson": ',
    )
    edit(
        copy,
        value,
        'metrics = ("accuracy",)\n\n\nimplements(Reversal',
        'metrics = ("accuracy", "first_token")\n\n\nimplements(Reversal',
    )
    test.write_text(TEST + METRIC_TEST)
    assert failures(copy) == []
    assert changed(with_task, files(copy)) == (3, 1)

    # without the reversal, and without the use of the metric, exactly their tests fail
    edit(copy, "src/weft/tasks/reversal.py", "def read_samples(", "def read(")
    edit(copy, "src/weft/tasks/reversal.py", "in self.task.metrics:", "in self.task.metrics[:1]:")
    assert failures(copy) == [LEARNS_BACKWARDS, KEEPS_CONTRACT, SCORES_FIRST_TOKEN]


TASKS = "|".join(task.__name__ for task in members(Task))
SHARED_ROOMS = ("training", "runs", "studies", "commands")
# what serves some tasks only, and why
SERVES_SOME = dict.fromkeys(
    ("commands/guess.py", "commands/guess_images.py", "commands/guess_pretrain.py"),
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
