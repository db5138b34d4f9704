"""Evaluation data: label names of files, and texts of stores."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from weft import recipe as R
from weft.data.shards.in_memory import InMemoryStore
from weft.evaluation.data import labels_by_number
from weft.evaluation.receipts import receipt
from weft.recipe.data.formats import SourceRow
from weft.tasks.task import EvaluationData

from ..inference.small import ready, tokenizer


def test_classes_are_numbers_only_where_none_of_a_file_is_a_name() -> None:
    def cells(held: list[Any], labels: tuple[str, ...]) -> list[Any]:
        return [
            item.fields["label"]
            for item in labels_by_number(
                [SourceRow(i, {"label": cell}) for i, cell in enumerate(held)], "label", labels
            )
        ]

    assert cells(["0", "1", "2", "3"], ("1", "2", "3", "4")) == ["0", "1", "2", "3"]
    assert cells([0, "1", "7"], ("bad", "good")) == ["bad", "good", "7"]
    assert cells(["bad", "1"], ("bad", "good")) == ["bad", "1"]


def test_the_words_of_a_store_are_of_the_rows_that_it_holds(tmp_path: Path) -> None:
    rows = [{"source": "paris", "target": None}, {"source": "yes", "target": "no"}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    store = InMemoryStore(rows[1:], R.SourceTargetPairs(), tokenizer(), None)
    assert EvaluationData(store, R.Source(paths=(str(tmp_path / "a.jsonl"),))).rows() == rows[1:]


def test_the_command_of_a_receipt_can_be_typed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["weft", "evaluate", "my run", "--data", "it's.csv"])
    found = receipt(
        ready(None), InMemoryStore([{"text": "yes"}], R.Documents(), tokenizer(), None), {}, 0.0, 0
    )
    assert shlex.split(found["command"]) == ["weft", "evaluate", "my run", "--data", "it's.csv"]
