"""Input rows: written files are read back, and invalid ones give one-line errors."""

import io
from pathlib import Path
from typing import Any

import pytest

from weft import recipe as R
from weft.data.reading.column_names import require_column
from weft.data.reading.columns import infer_row_schema
from weft.data.reading.inputs import open_input, split_lines
from weft.data.reading.write_rows import write_rows
from weft.support import registry


def rows_of(path: str) -> list[dict[str, Any]]:
    """What a verb reads."""
    return [item.fields for item in open_input(path).readable().rows]


ODD = ['he said "hi"', "a, b", "back\\slash", "a\u2028b\x0cc\x85d", ""]


@pytest.mark.parametrize("suffix", ["csv", "tsv", "json", "jsonl", "parquet"])
def test_what_is_written_is_read_again(suffix: str, tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"text": text, "number": str(i)} for i, text in enumerate(ODD)]
    path = str(tmp_path / f"rows.{suffix}")
    write_rows(path, rows)
    assert rows_of(path) == rows


@pytest.mark.parametrize("suffix", ["csv", "json", "jsonl", "parquet"])
def test_a_cell_may_hold_tabs_and_line_ends_where_the_format_can(
    suffix: str, tmp_path: Path
) -> None:
    path = str(tmp_path / f"rows.{suffix}")
    write_rows(path, [{"text": "one\ttwo\nthree"}])
    assert rows_of(path) == [{"text": "one\ttwo\nthree"}]


@pytest.mark.parametrize("text", ["a\tb", "a\nb", "a\r"])
def test_a_tsv_refuses_a_tab_or_a_line_end_and_leaves_what_was_there(
    text: str, tmp_path: Path
) -> None:
    (tmp_path / "rows.tsv").write_text("kept")
    with pytest.raises(
        ValueError,
        match=r"a tab or a line end, which \.tsv cannot represent; write \.csv or \.jsonl",
    ):
        write_rows(str(tmp_path / "rows.tsv"), [{"text": text}])
    assert (tmp_path / "rows.tsv").read_text() == "kept"


def test_parquet_keeps_objects_and_rows_that_lack_a_column_and_refuses_mixed_kinds(
    tmp_path: Path,
) -> None:
    path = str(tmp_path / "rows.parquet")
    write_rows(path, [{"a": 1}, {"a": 2, "shares": {"x": 0.5}}])
    assert rows_of(path) == [{"a": 1, "shares": None}, {"a": 2, "shares": {"x": 0.5}}]
    with pytest.raises(
        ValueError,
        match=r"rows\.parquet: a Parquet column has values of one type .*; write \.jsonl",
    ):
        write_rows(path, [{"a": 1}, {"a": "x"}])


def test_an_array_of_something_else_than_objects_and_bytes_that_are_no_text_are_named(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.json").write_text('\n[{"a": 1}, 2]')
    with pytest.raises(
        ValueError, match=r"a\.json, row 2: element 1 of the array is not an object"
    ):
        rows_of(str(tmp_path / "a.json"))
    (tmp_path / "a.txt").write_bytes(b"good\nb\xe4d\n")
    with pytest.raises(
        ValueError, match=r"a\.txt, line 2: not UTF-8: byte 0xe4 at 6; .*iconv -f latin1 -t utf-8"
    ):
        rows_of(str(tmp_path / "a.txt"))


def test_lines_end_at_line_ends_alone_and_the_mark_of_utf8_is_no_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = "\ufeffa\u2028b\x0cc\x85d\r\n\r\nlast\n"
    (tmp_path / "a.txt").write_text(given, newline="")
    monkeypatch.setattr("sys.stdin", io.StringIO(given, newline=""))
    right = [{"text": text} for text in ("a\u2028b\x0cc\x85d", "", "last")]
    assert rows_of(str(tmp_path / "a.txt")) == rows_of("-") == right
    assert split_lines("") == []


# Which column is which


def test_endings_keep_the_order_of_the_file_which_labels_count() -> None:
    fields = {"ctx": "x", "b": "1", "a": "2", "label": 0}
    assert R.MultipleChoice.infer_rows([fields], ["ctx", "b", "a", "label"]) == R.ChoiceQuestions(
        context="ctx", endings=("b", "a"), label="label"
    )
    names = tuple(f"ending{i}" for i in range(12))
    row = R.MultipleChoice.infer_rows(
        [{"ctx": "x", "answerKey": "B", **dict.fromkeys(names, "y"), "label": 0}]
    )
    assert row == R.ChoiceQuestions(context="ctx", endings=names, label="label")
    with pytest.raises(ValueError, match="the context and its endings are not recognised"):
        R.MultipleChoice.infer_rows([{"ctx": "x", "label": 0}])


def test_rows_of_ones_own_take_the_columns_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "CHOICES", dict(registry.CHOICES))

    @registry.choice
    class Triples(R.RowSchema):
        column_fields = ("subject", "relation")
        subject: str = "subject"
        relation: str = "relation"

        @property
        def text_columns(self) -> tuple[str, ...]:
            return self.subject, self.relation

    fields = {"who": "a", "what": "b"}
    named = infer_row_schema(Triples(), [fields], ["who", "what"])
    assert named == Triples(subject="who", relation="what")
    with pytest.raises(ValueError, match="no column 'subject'"):
        infer_row_schema(Triples(), [fields])


def test_the_suggested_fix_names_the_commands_option() -> None:
    with pytest.raises(ValueError, match=r"name it with --column$"):
        require_column({"a": 1}, None, "text", "--column")
