"""Names that the `datasets` library keeps beside numbers: a class is read by its name, a number as
a number.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import weft
from tests.commands.tuned_data import examples_of
from weft import recipe as R
from weft.data.preparing.prepare import prepare
from weft.data.reading.formats.class_labels import name_classes, names_of_columns
from weft.data.reading.rows import load_source
from weft.data.reading.table import Tables
from weft.data.shards.store import open_store
from weft.recipe.data.cells import class_name
from weft.suggest.split import split_tables

STARS = ["1 star", "2 stars", "3 stars"]
RATED = [{"text": f"a long text {i}", "label": i % 3} for i in range(30)]
CHOSEN = [
    {"context": f"It rained {i} times.", "ending0": "It was wet.", "ending1": "It was dry."}
    | {"label": i % 2}
    for i in range(30)
]


def class_label(*names: str) -> dict[str, Any]:
    return {"_type": "ClassLabel", "names": list(names)}


def labelled(folder: Path, rows: list[dict[str, Any]], *names: str) -> R.Source:
    """A Parquet file whose metadata name the numbers of the column `label`."""
    metadata = json.dumps({"info": {"features": {"label": class_label(*names)}}}).encode()
    table = pa.Table.from_pylist(rows).replace_schema_metadata({b"huggingface": metadata})
    pq.write_table(table, folder / "a.parquet")
    return R.Source(paths=(str(folder / "a.parquet"),), format="parquet")


@pytest.mark.parametrize(
    ("rows", "names", "schema", "task"),
    [
        (RATED, STARS, R.LabelledTexts(numeric_label=True), "regress"),
        (
            CHOSEN,
            ["ending0", "ending1"],
            R.ChoiceQuestions(endings=("ending0", "ending1")),
            "choose",
        ),
    ],
)
def test_a_task_that_reads_numbers_reads_those_that_have_names(
    rows: list[dict[str, Any]], names: list[str], schema: R.RowSchema, task: str, tmp_path: Path
) -> None:
    """Prepared as a recipe does, and detected and divided as `weft tune` does."""
    numbers = [row["label"] for row in rows]
    source = labelled(tmp_path, rows, *names)
    data = R.Data(rows=schema, train=source, tokenizer=R.ByteBPE(vocab_size=300))
    store = open_store(prepare(data, tmp_path / "prepared", workers=1).folder)
    assert [store.row(i)["label"] for i in range(len(store))] == numbers
    found = examples_of(source.paths, task=task)
    assert found.row == schema
    divided = split_tables(Tables(weft.open_table(source.paths)), schema, found.usable)
    data = replace(data, train=divided.train, valid=divided.valid)
    prepared = prepare(data, tmp_path / "divided", workers=1)
    sides = [prepared.train, prepared.open("valid")]
    stored = [side.row(i)["label"] for side in sides if side for i in range(len(side))]
    assert sorted(stored) == sorted(numbers)
    assert all(sides)


@pytest.mark.parametrize("count", [3, 30])
def test_numbers_that_have_names_are_classes_to_a_classifier(count: int, tmp_path: Path) -> None:
    """Also more of them than numbers without names may be, and in what `weft tune` trains on."""
    names = [f"class {i}" for i in range(count)]
    rows = [{"text": f"a long text {i}", "label": i % count} for i in range(90)]
    found = examples_of(labelled(tmp_path, rows, *names).paths)
    assert found.task == "classify"
    assert found.labels == tuple(sorted(names))
    table = weft.open_table(found.train.paths)
    divided = split_tables(Tables(table), found.row, found.usable)
    assert {item.fields["label"] for item in load_source(divided.train)[0]} == {*names}


def test_a_text_to_text_model_is_told_the_names(tmp_path: Path) -> None:
    schema = R.TemplatedPairs(template="{text}", target="label", labels=tuple(STARS))
    (row, *_), _ = load_source(labelled(tmp_path, RATED, *STARS))
    schema.check(row.fields, ())
    assert schema.target_text(row.fields) == "1 star"


def test_lists_of_numbers_are_named_too_and_an_unknown_class_is_empty() -> None:
    tags = class_label("O", "B-X")
    lists = {kind: {"feature": tags, "_type": kind} for kind in ("Sequence", "List", "LargeList")}
    names = names_of_columns(lists | {"old": [tags], "label": tags, "text": {"_type": "Value"}})
    row = {kind: [0, 1, 1] for kind in lists} | {"old": [1], "label": -1, "text": "a"}
    named = {kind: ["O", "B-X", "B-X"] for kind in lists}
    assert name_classes(row, names) == named | {"old": ["B-X"], "label": None, "text": "a"}


@pytest.mark.parametrize("cell", ["dog", 1.0, True, {"feature": 1}, b"1", None])
def test_a_cell_that_is_no_whole_number_stays(cell: Any) -> None:
    """Of a column that was written over, with the metadata of the one before."""
    named = name_classes({"label": cell}, names_of_columns({"label": class_label("a", "b")}))
    assert named["label"] is cell


def test_a_struct_with_a_field_called_feature_is_no_list() -> None:
    assert names_of_columns({"label": {"feature": class_label("a", "b")}}) == {}


def test_a_number_beyond_the_names_is_a_bad_row(tmp_path: Path) -> None:
    rows = [{"text": "a", "label": number} for number in (0, 2, 1)]
    good, (bad,) = load_source(labelled(tmp_path, rows, "no", "yes"))
    assert [class_name(item.fields["label"]) for item in good] == ["no", "yes"]
    assert bad["offset"] == 1
    assert bad["reason"] == "label 2 has no name; the file has classes 0 to 1"
