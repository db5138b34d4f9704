"""Rows of files: what is written is read again, and what cannot be is said in one line."""
import io
import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from weft import recipe as R
from weft.data.lines import Found
from weft.evaluate import tables
from weft.evaluate.data import On, numbered, words
from weft.evaluate.memory import Held
from weft.evaluate.report import receipt

from .small import ready, tokenizer

ODD = ['he said "hi"', "a, b", "back\\slash", "a\u2028b\x0cc\x85d", ""]


@pytest.mark.parametrize("suffix", ["csv", "tsv", "json", "jsonl", "parquet"])
def test_what_is_written_is_read_again(suffix: str, tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"text": text, "number": str(i)} for i, text in enumerate(ODD)]
    path = str(tmp_path / f"rows.{suffix}")
    tables.write_rows(path, rows)
    assert tables.rows_of(path) == rows


@pytest.mark.parametrize("suffix", ["csv", "json", "jsonl", "parquet"])
def test_a_cell_may_hold_tabs_and_line_ends_where_the_format_can(suffix: str, tmp_path: Path) -> None:
    path = str(tmp_path / f"rows.{suffix}")
    tables.write_rows(path, [{"text": "one\ttwo\nthree"}])
    assert tables.rows_of(path) == [{"text": "one\ttwo\nthree"}]


@pytest.mark.parametrize("text", ["a\tb", "a\nb", "a\r"])
def test_a_tsv_refuses_a_tab_or_a_line_end_and_leaves_what_was_there(text: str, tmp_path: Path) -> None:
    (tmp_path / "rows.tsv").write_text("kept")
    with pytest.raises(ValueError, match=r"a tab or a line end, which a \.tsv cannot; write \.csv or \.jsonl"):
        tables.write_rows(str(tmp_path / "rows.tsv"), [{"text": text}])
    assert (tmp_path / "rows.tsv").read_text() == "kept"


def test_parquet_keeps_objects_and_rows_that_lack_a_column_and_refuses_mixed_kinds(tmp_path: Path) -> None:
    path = str(tmp_path / "rows.parquet")
    tables.write_rows(path, [{"a": 1}, {"a": 2, "shares": {"x": 0.5}}])
    assert tables.rows_of(path) == [{"a": 1, "shares": None}, {"a": 2, "shares": {"x": 0.5}}]
    with pytest.raises(ValueError, match=r"rows\.parquet: Parquet's columns have one kind of value each .*; write \.jsonl"):
        tables.write_rows(path, [{"a": 1}, {"a": "x"}])


def test_an_array_of_something_else_than_objects_and_bytes_that_are_no_text_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('\n[{"a": 1}, 2]')
    with pytest.raises(ValueError, match=r"a\.json: element 1 of the array is not an object"):
        tables.rows_of(str(tmp_path / "a.json"))
    (tmp_path / "a.txt").write_bytes(b"good\nb\xe4d\n")
    with pytest.raises(ValueError, match=r"a\.txt, at 5: not UTF-8: byte 0xe4 at 6"):
        tables.rows_of(str(tmp_path / "a.txt"))


def test_lines_end_at_line_ends_alone_and_the_mark_of_utf8_is_no_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = "\ufeffa\u2028b\x0cc\x85d\r\n\r\nlast\n"
    (tmp_path / "a.txt").write_text(given, newline="")
    monkeypatch.setattr("sys.stdin", io.StringIO(given, newline=""))
    right = [{"text": text} for text in ("a\u2028b\x0cc\x85d", "", "last")]
    assert tables.rows_of(str(tmp_path / "a.txt")) == tables.rows_of("-") == right
    assert tables.lines_of("") == []


# Which column is which

def test_endings_keep_the_order_of_the_file_which_labels_count() -> None:
    fields = {"ctx": "x", "b": "1", "a": "2", "label": 0}
    assert tables.row_value("choose", fields, ["ctx", "b", "a", "label"]) == R.Choices(context="ctx", endings=("b", "a"), label="label")
    names = tuple(f"ending{i}" for i in range(12))
    row = tables.row_value("choose", {"ctx": "x", "answerKey": "B", **dict.fromkeys(names, "y"), "label": 0})
    assert row == R.Choices(context="ctx", endings=names, label="label")
    with pytest.raises(ValueError, match="which column is the ending"):
        tables.row_value("choose", {"ctx": "x", "label": 0})


def test_the_way_out_names_the_verbs_own_option() -> None:
    with pytest.raises(ValueError, match=r"name it with --column$"):
        tables.need({"a": 1}, None, "text", "--column")


# Rows to score

def test_classes_are_numbers_only_where_none_of_a_file_is_a_name() -> None:
    def cells(held: list[Any], labels: tuple[str, ...]) -> list[Any]:
        return [item.fields["label"] for item in numbered([Found(i, {"label": cell}) for i, cell in enumerate(held)], "label", labels)]

    assert cells(["0", "1", "2", "3"], ("1", "2", "3", "4")) == ["0", "1", "2", "3"]
    assert cells([0, "1", "7"], ("bad", "good")) == ["bad", "good", "7"]
    assert cells(["bad", "1"], ("bad", "good")) == ["bad", "1"]


def test_the_words_of_a_store_are_of_the_rows_that_it_holds(tmp_path: Path) -> None:
    rows = [{"source": "paris", "target": None}, {"source": "yes", "target": "no"}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    store = Held(rows[1:], R.Pairs(), tokenizer(), None)
    assert words(On(store, R.Source(paths=(str(tmp_path / "a.jsonl"),)))) == rows[1:]


def test_the_command_of_a_receipt_can_be_typed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["weft", "evaluate", "my run", "--on", "it's.csv"])
    found = receipt(ready(None), Held([{"text": "yes"}], R.Documents(), tokenizer(), None), {}, 0.0, 0)
    assert shlex.split(found["command"]) == ["weft", "evaluate", "my run", "--on", "it's.csv"]
