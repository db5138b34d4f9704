"""Tables are read identically by every entry point, for any delimiter, quoting, encoding or
format.
"""

import csv
import io
import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.commands.tuned_data import examples_of
from tests.inference.small import ready
from weft import recipe as R
from weft import spec as S
from weft.commands.rows import input_rows
from weft.data.reading.columns import infer_row_schema
from weft.data.reading.rows import load_source
from weft.data.reading.source import resolve_source
from weft.evaluation.data import load_files
from weft.support.options.shared import RowOptions

LABELS = ("down", "side", "up")
LETTERS = "abc  xyz,;|'\"\\{}[]#-éß日😀"
ENCODINGS = ["utf-8", "utf-8-sig", "utf-16", "utf-16-be"]


def rows(seed: int, letters: str) -> list[dict[str, str]]:
    draw = random.Random(seed)
    texts = [
        "w" + "".join(draw.choices(letters, k=draw.randint(1, 30))) + " w w" for _ in range(40)
    ]
    return [{"text": text, "label": draw.choice(LABELS)} for text in texts]


def encoded(text: str, encoding: str) -> bytes:
    mark = "\ufeff" if encoding == "utf-16-be" else ""
    return (mark + text).encode(encoding)


def table(given: list[dict[str, str]], delimiter: str, quoting: Any) -> str:
    out = io.StringIO()
    writer = csv.writer(out, delimiter=delimiter, quoting=quoting, lineterminator="\n")
    writer.writerows([list(given[0]), *(row.values() for row in given)])
    return out.getvalue()


def doors(path: Path) -> dict[str, list[dict[str, str]]]:
    """What train, tune, evaluate and the verbs read."""
    loud: list[str] = []
    train = resolve_source(R.Source(paths=(str(path),)), R.LabelledTexts())
    scored = load_files(
        ready(S.ClassifierHead(num_labels=3, labels=LABELS)),
        R.Classification(),
        [str(path)],
        report=loud.append,
    )
    asked = input_rows(RowOptions(name="none", input=str(path)), [])
    found = {
        "train": [item.fields for item in load_source(train)[0]],
        "tune": examples_of([str(path)]).rows,
        "evaluate": scored.rows(),
        "verbs": asked,
    }
    assert not loud, "nothing is set aside or guessed"
    return found


def same(path: Path, given: list[dict[str, str]]) -> None:
    for door, found in doors(path).items():
        assert found == given, door


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("delimiter", [",", ";", "|"])
@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_every_entry_point_reads_the_same_csv(
    seed: int, quoting: Any, delimiter: str, encoding: str, tmp_path: Path
) -> None:
    given = rows(seed, LETTERS + "\n\t")
    (tmp_path / "a.csv").write_bytes(encoded(table(given, delimiter, quoting), encoding))
    same(tmp_path / "a.csv", given)


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("suffix", ["tsv", "csv", "txt"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_every_entry_point_reads_the_same_tsv_under_any_name(
    seed: int, suffix: str, encoding: str, tmp_path: Path
) -> None:
    given = rows(seed, LETTERS)
    text = "".join(
        "\t".join(cells) + "\n" for cells in [list(given[0]), *(row.values() for row in given)]
    )
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(encoded(text, encoding))
    same(path, given)


@pytest.mark.parametrize("ending", ["jsonl", "json", "parquet"])
def test_languages_nested_as_the_hub_nests_them_are_columns(tmp_path: Path, ending: str) -> None:
    rows = [{"id": i, "translation": {"de": f"Satz {i}", "en": f"row {i}"}} for i in range(3)]
    path = tmp_path / f"pairs.{ending}"
    if ending == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        lines = "\n".join(map(json.dumps, rows))
        path.write_text(lines if ending == "jsonl" else json.dumps(rows))
    source = resolve_source(R.Source(paths=(str(path),)), R.SourceTargetPairs())
    for columns in ((), ("en", "de")):
        fields = [item.fields for item in load_source(source, columns)[0]]
        assert [(row["en"], row["de"]) for row in fields] == [
            (f"row {i}", f"Satz {i}") for i in range(3)
        ]
    assert infer_row_schema(R.SourceTargetPairs(), fields) == R.SourceTargetPairs(
        source="en", target="de"
    )
    other = [{"id": 1, "cs": "věta", "en": "sentence"}]
    assert infer_row_schema(R.SourceTargetPairs(), other) == R.SourceTargetPairs(
        source="en", target="cs"
    )
