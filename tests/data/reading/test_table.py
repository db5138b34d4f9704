"""Commands and Python functions detect the same table in ordinary and hostile files."""

import gzip
import json
import struct
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import weft
from tests.commands.tuned_data import examples_of
from tests.inference.small import ready
from weft import recipe as R
from weft import spec as S
from weft.cli import main
from weft.commands.rows import input_rows
from weft.data.reading.quarantine import MAX_BAD_ROWS
from weft.evaluation.data import load_files
from weft.suggest.opening import open_tables
from weft.suggest.suggest import suggest
from weft.support.options.shared import RowOptions

ROWS = [
    (f"the {kind} film is number {i}", ("neg", "pos")[i % 2])
    for i, kind in enumerate("abcdefghij" * 6)
]
RECORDS = [{"text": text, "label": label} for text, label in ROWS]
NUMBERS = [{"text": text, "label": i % 2} for i, (text, _) in enumerate(ROWS)]


def delimited(delimiter: str = ",", header: str = "text,label", rows: Any = ROWS) -> str:
    lines = [header.replace(",", delimiter)] if header else []
    return "\n".join([*lines, *(delimiter.join(row) for row in rows), ""])


def lines_of(records: list[Any]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def parquet(records: list[Any]) -> bytes:
    buffer = BytesIO()
    pq.write_table(pa.Table.from_pylist(records), buffer)
    return buffer.getvalue()


def with_line(line: str, at: int = 20) -> str:
    lines = delimited().split("\n")
    return "\n".join([*lines[:at], line, *lines[at:]])


PNG = BytesIO()
Image.new("RGB", (8, 8)).save(PNG, "PNG")
QUOTED = [(f'"{text},\nand ""so"" on"', label) for text, label in ROWS]

# name of the file: what it holds, and format, columns, classes, usable rows
READ: dict[str, tuple[str | bytes, str, str, str, int]] = {
    "commas.csv": (delimited(), "csv", "text label", "neg pos", 60),
    "tabs.tsv": (delimited("\t"), "tsv", "text label", "neg pos", 60),
    "semicolons.csv": (delimited(";"), "csv", "text label", "neg pos", 60),
    "bars.csv": (delimited("|"), "csv", "text label", "neg pos", 60),
    "tabs.csv": (delimited("\t"), "tsv", "text label", "neg pos", 60),
    "tabs.txt": (delimited("\t"), "tsv", "text label", "neg pos", 60),
    "commas.txt": (delimited(), "csv", "text label", "neg pos", 60),
    "lines.jsonl": (lines_of(RECORDS), "jsonl", "text label", "neg pos", 60),
    "lines.json": (lines_of(RECORDS), "jsonl", "text label", "neg pos", 60),
    "array.json": (json.dumps(RECORDS), "json", "text label", "neg pos", 60),
    "indented.json": (json.dumps(RECORDS, indent=2), "json", "text label", "neg pos", 60),
    "array.txt": (json.dumps(RECORDS), "json", "text label", "neg pos", 60),
    "table.parquet": (parquet(RECORDS), "parquet", "text label", "neg pos", 60),
    "table.data": (parquet(RECORDS), "parquet", "text label", "neg pos", 60),
    "packed.csv.gz": (gzip.compress(delimited().encode()), "csv", "text label", "neg pos", 60),
    "mark.csv": ("\ufeff" + delimited(), "csv", "text label", "neg pos", 60),
    "utf16.csv": (delimited().encode("utf-16"), "csv", "text label", "neg pos", 60),
    "windows.csv": (delimited().replace("\n", "\r\n"), "csv", "text label", "neg pos", 60),
    "quoted.csv": (delimited(rows=QUOTED), "csv", "text label", "neg pos", 60),
    "no_header.csv": (delimited(header=""), "csv", "0 1", "neg pos", 60),
    "other_names.csv": (
        delimited(header="review,sentiment"),
        "csv",
        "review sentiment",
        "neg pos",
        60,
    ),
    "capitals.csv": (delimited(header="Text,Label"), "csv", "Text Label", "neg pos", 60),
    "numbers.jsonl": (lines_of(NUMBERS), "jsonl", "text label", "0 1", 60),
    "more.jsonl": (
        lines_of([{"id": i, **row, "more": {"a": [i]}} for i, row in enumerate(RECORDS)]),
        "jsonl",
        "text label",
        "neg pos",
        60,
    ),
    "blank.csv": (delimited().replace("\n", "\n\n"), "csv", "text label", "neg pos", 60),
    "wide_row.csv": (with_line("a, b,neg"), "csv", "text label", "neg pos", 60),
    "short_row.csv": (with_line("alone"), "csv", "text label", "neg pos", 60),
    "open_quote.csv": (with_line('"open,neg'), "csv", "text label", "neg pos", 60),
    "empty_cell.csv": (with_line(",neg"), "csv", "text label", "neg pos", 60),
    "half.jsonl": (lines_of(RECORDS) + '{"text": "half', "jsonl", "text label", "neg pos", 60),
    "number.jsonl": (lines_of(RECORDS) + "7\n", "jsonl", "text label", "neg pos", 60),
    "latin_row.csv": (
        delimited().encode() + "é,neg\n".encode("latin-1"),
        "csv",
        "text label",
        "neg pos",
        60,
    ),
}
BAD_CELLS = ("empty_cell.csv",)  # rows that can be read, but not learned from

REFUSED: dict[str, tuple[str | bytes, str]] = {
    "empty.csv": ("", "no row|not one row"),
    "header.csv": ("text,label\n", "no row|not one row"),
    "twice.csv": (delimited(header="text,text"), "more than one column is named 'text'"),
    "latin.csv": (
        delimited(rows=[(f"é {text}", label) for text, label in ROWS]).encode("latin-1"),
        "60 of 60 rows .*not UTF-8.*iconv -f latin1",
    ),
    "utf16le.csv": (delimited().encode("utf-16-le"), "binary file.*iconv -f utf-16le"),
    "picture.csv": (PNG.getvalue() + bytes(500), "binary"),
    "cut.csv.gz": (gzip.compress(delimited().encode())[:-9], "cannot be unpacked"),
    "damaged.parquet": (parquet(RECORDS)[:-40] + b"PAR1", "cannot be read as Parquet"),
    "many_bad.jsonl": (
        "".join(lines_of([row]) + '{"a\n' for row in RECORDS),
        "60 of 120 rows cannot be read .*lines 2, 4, 6",
    ),
    "mixed.json": (
        json.dumps([RECORDS[0], 2, 3, 4]),
        "3 of 4 rows cannot be read .*element 1 of the array is not an object",
    ),
}

LEARNED: dict[str, tuple[str | bytes, str]] = {
    "one_column.csv": ("text\n" + "a film\nb film\n" * 20, "only the column 'text', and no label"),
    "one_class.csv": (
        delimited(rows=[(text, "x") for text, _ in ROWS]),
        "every row has label = 'x'",
    ),
    "no_label.csv": (
        delimited(rows=[(text, "") for text, _ in ROWS]),
        "label is empty in every row",
    ),
    "lists.jsonl": (
        lines_of([{"text": text, "label": [label]} for text, label in ROWS]),
        "label is empty in every row",
    ),
}


class Answer(NamedTuple):
    """What a file holds, to one of those who ask; None: not asked."""

    format: str | None
    columns: tuple[str, ...] | None
    classes: tuple[str, ...] | None
    rows: int


def columns_of(row: R.RowSchema) -> tuple[str, ...]:
    return row.columns


def ask_new(path: str, classes: tuple[str, ...]) -> Answer:
    tables = open_tables([path], task="classify")
    suggestion = suggest(tables, "classify")
    data: Any = suggestion.recipe.data
    count = int(suggestion.facts["rows"].split()[0].replace(",", ""))
    return Answer(data.train.format, columns_of(data.rows), data.rows.labels, count)


def ask_tune(path: str, classes: tuple[str, ...]) -> Answer:
    found = examples_of([path], task="classify")
    return Answer(found.train.format, columns_of(found.row), found.labels, len(found.rows))


def ask_evaluate(path: str, classes: tuple[str, ...]) -> Answer:
    model = ready(S.ClassifierHead(num_labels=len(classes), labels=classes))
    data = load_files(model, R.Classification(), [path], report=lambda line: None)
    meta = data.store.meta
    assert data.source is not None
    return Answer(data.source.format, columns_of(meta.rows), meta.labels, len(data.store))


def ask_inputs(path: str, classes: tuple[str, ...]) -> Answer:
    """What `weft classify RUN -i FILE` reads."""
    options = RowOptions(name="none", input=path, max_bad_row_fraction=MAX_BAD_ROWS)
    rows = input_rows(options, [])
    return Answer(None, tuple(rows[0]), None, len(rows))


def ask_python(path: str, classes: tuple[str, ...]) -> Answer:
    table = weft.open_table([path])
    row = table.row_schema(R.Classification, "classify")
    known = tuple(table.classes(str(row.label_column)))
    usable = table.usable(row, [name for name in known if name])
    return Answer(table.format, columns_of(row), known, len(usable.rows))


ASKED: dict[str, Callable[[str, tuple[str, ...]], Answer]] = {
    "new": ask_new,
    "tune": ask_tune,
    "evaluate": ask_evaluate,
    "inputs": ask_inputs,
    "python": ask_python,
}


def write(path: Path, content: str | bytes) -> str:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


@pytest.mark.parametrize("name", READ)
def test_a_file_holds_the_same_whoever_asks(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    content, format, columns, classes, count = READ[name]
    path = write(tmp_path / name, content)
    expected = Answer(format, tuple(columns.split()), tuple(classes.split()), count)
    for who, ask in ASKED.items():
        answer = ask(path, tuple(classes.split()))
        assert answer.format in (format, None), who
        assert answer.classes in (expected.classes, None), who
        if who == "inputs":
            assert {*expected.columns} <= {*answer.columns}, who
            bad_rows = 1 if name in BAD_CELLS else 0
            assert answer.rows == count + bad_rows, who
        else:
            assert (answer.columns, answer.rows) == (expected.columns, count), who


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_that_cannot_be_read_is_refused_whoever_asks(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    content, message = REFUSED[name]
    path = write(tmp_path / name, content)
    for ask in ASKED.values():
        with pytest.raises(ValueError, match=message) as caught:
            ask(path, ("neg", "pos"))
        assert name in str(caught.value)


@pytest.mark.parametrize("name", LEARNED)
def test_what_cannot_be_learned_from_is_refused_alike(name: str, tmp_path: Path) -> None:
    content, message = LEARNED[name]
    path = write(tmp_path / name, content)
    refusals = []
    for ask in (ask_new, ask_tune):
        with pytest.raises(ValueError, match=f"{name}: .*{message}") as caught:
            ask(path, ("neg", "pos"))
        refusals.append(str(caught.value))
    assert len({*refusals}) == 1


# Other formats


def squad() -> str:
    answers = [{"text": "loom", "answer_start": 4}]
    asked = [{"id": str(i), "question": f"what {i}?", "answers": answers} for i in range(30)]
    return json.dumps({"data": [{"paragraphs": [{"context": "the loom", "qas": asked}]}]})


def images(folder: Path) -> None:
    for name in ("cat", "dog"):
        (folder / "pets" / name).mkdir(parents=True)
        for i in range(6):
            (folder / "pets" / name / f"{i}.png").write_bytes(PNG.getvalue())
    pixels = np.zeros((12, 8, 8), np.uint8)
    np.savez(folder / "pets.npz", images=pixels, labels=np.arange(12) % 2)
    header = struct.pack(">BBBB", 0, 0, 8, 3) + struct.pack(">III", *pixels.shape)
    (folder / "pets-images-idx3-ubyte").write_bytes(header + pixels.tobytes())
    labels = (np.arange(12) % 2).astype(np.uint8)
    header = struct.pack(">BBBB", 0, 0, 8, 1) + struct.pack(">I", 12)
    (folder / "pets-labels-idx1-ubyte").write_bytes(header + labels.tobytes())
    listed = [f"{name}/{i}.png,{name}" for i in range(6) for name in ("cat", "dog")]
    (folder / "pets.csv").write_text("\n".join(["file,label", *listed]))
    records = [{"image": PNG.getvalue(), "label": i % 2} for i in range(12)]
    pq.write_table(pa.Table.from_pylist(records), folder / "pets.parquet")


IMAGES = {
    "folder": (["pets"], "cat dog"),
    "npz": (["pets.npz"], "0 1"),
    "idx": (["pets-images-idx3-ubyte", "pets-labels-idx1-ubyte"], "0 1"),
    "image_table": (["pets.csv", "pets"], "cat dog"),
    "parquet": (["pets.parquet"], "0 1"),
}


@pytest.mark.parametrize("format", IMAGES)
def test_images_and_their_classes_are_the_same_whoever_asks(
    format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    images(tmp_path)
    paths, classes = IMAGES[format]
    table = weft.open_table(paths)
    row = table.row_schema(R.Classification)
    assert isinstance(row, R.LabelledImages)
    assert (table.format, table.classes(row.label)) == (format, classes.split())
    assert len(table.usable(row, classes.split()).rows) == 12
    suggestion = suggest(open_tables(paths, task="classify"), "classify")
    data: Any = suggestion.recipe.data
    assert (data.train.format, data.rows) == (format, row)
    assert suggestion.facts["classes"].endswith(classes.replace(" ", ", "))
    tuned = weft.open_table(paths, expected=R.LabelledImages())
    assert (tuned.source, tuned.row_schema(R.Classification)) == (table.source, row)


def test_questions_words_pairs_and_boxes_have_their_formats_and_tasks(tmp_path: Path) -> None:
    words = "".join(f"Paris B-LOC\nis O\nnumber{i} O\n\n" for i in range(30))
    for name, content, format, task in (
        ("a.json", squad(), "squad", "answer"),
        ("a.conll", words, "conll", "tag"),
        ("a.txt", words, "conll", "tag"),
    ):
        found = examples_of([write(tmp_path / name, content)])
        assert (found.train.format, found.task, len(found.rows)) == (format, task, 30)
    pairs = [write(tmp_path / f"a.{side}", f"{side} text\n" * 9) for side in ("en", "de")]
    table = weft.open_table(pairs, expected=R.SourceTargetPairs())
    assert (table.format, table.columns) == ("parallel", ("source", "target"))
    (tmp_path / "shots").mkdir()
    (tmp_path / "shots" / "a.png").write_bytes(PNG.getvalue())
    boxes: dict[str, list[Any]] = {"images": [{"id": 1, "file_name": "a.png"}]}
    boxes["categories"] = [{"id": 1, "name": "cat"}]
    boxes["annotations"] = [{"image_id": 1, "category_id": 1, "bbox": [1, 1, 2, 2]}]
    paths = [write(tmp_path / "boxes.json", json.dumps(boxes)), str(tmp_path / "shots")]
    table = weft.open_table(paths, expected=R.ImagesWithBoxes())
    row = R.ImagesWithBoxes(labels=("cat",))
    assert (table.format, len(table.usable(row).rows)) == ("coco", 1)
    assert table.classes("labels") == ["cat"]


def test_conversations_are_rows_of_their_schema(tmp_path: Path) -> None:
    talk = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
    records = [{"messages": talk}] * 30 + [{"messages": talk[:1]}]
    table = weft.open_table([write(tmp_path / "a.jsonl", lines_of(records))])
    usable = table.usable(R.Conversations())
    assert (len(usable.rows), len(usable.bad)) == (30, 1)
    assert "line 31: no message has the role 'assistant'" in usable.notes()[0]


def test_rows_are_read_once_and_a_sample_does_not_read_to_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from weft.data.reading import table as module

    limits = []
    load = module.load_source

    def counted(source: R.Source, **more: Any) -> Any:
        limits.append(more.get("max_rows"))
        return load(source, **more)

    monkeypatch.setattr(module, "load_source", counted)
    table = weft.open_table([write(tmp_path / "a.csv", delimited())])
    assert len(table.sample(5).rows) == 5
    for _ in range(2):
        assert len(table.rows) == 60
        assert len(table.sample(100).rows) == 60
    assert limits == [5, None]


def test_validation_columns_are_renamed_by_position_only_if_there_are_as_many(
    tmp_path: Path,
) -> None:
    table = weft.open_table([write(tmp_path / "a.csv", delimited())])
    renamed = table.open_like([write(tmp_path / "b.csv", delimited(header="content,mark"))])
    assert renamed.columns == table.columns
    wide = delimited(header="id,content,mark", rows=[("7", *row) for row in ROWS])
    assert table.open_like([write(tmp_path / "c.csv", wide)]).columns == ("id", "content", "mark")


# Of a user's own


OWN = """
from weft import recipe
from weft.data.reading.formats.lines import LineFormat, decoded_lines
from weft.recipe.data.formats import BadRow, SourceRow
from weft.support.registry import register


@register
class Arrows(LineFormat):
    name = "arrows"
    suffixes = (".arrows",)

    def sniff(self, head, path):
        return 0.95 if b" ==> " in head.partition(b"\\n")[0] else super().sniff(head, path)

    def rows(self, path, span, source, columns):
        for offset, line in decoded_lines(path, span):
            text, _, label = line.partition(" ==> ")
            row = {"text": text, "label": label}
            yield SourceRow(offset, row) if label else BadRow(offset, "no arrow")


@register
class Opinions(recipe.LabelledTexts):
    name = "opinions"


@register
class Opinion(recipe.Classification):
    name = "opinion"
    variants = ()
    numeric_task = None

    @classmethod
    def matches(cls, table):
        return 5.0 if table.format == "arrows" and {"text", "label"} <= {*table.columns} else 0.1
"""


def test_a_format_and_a_task_of_a_users_file_are_read_and_offered_by_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from weft.recipe.data.formats import Format
    from weft.support import registry, user_code

    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(registry.NAMED, Format, dict(registry.NAMED[Format]))
    monkeypatch.setattr(registry, "CHOICES", dict(registry.CHOICES))
    monkeypatch.setattr(user_code, "LOADED", {})
    monkeypatch.setenv(user_code.ENVIRONMENT, "")
    user_code.load_code([write(tmp_path / "arrows_of_mine.py", OWN)])
    content = "".join(f"{text} ==> {label}\n" for text, label in ROWS) + "nothing\n"
    for name in ("a.arrows", "a.unknown"):
        path = write(tmp_path / name, content)
        for who, ask in ASKED.items():
            answer = ask(path, ("neg", "pos"))
            assert answer.format in ("arrows", None), who
            assert (answer.columns, answer.rows) == (("text", "label"), 60), who
            assert answer.classes in (("neg", "pos"), None), who
        found = examples_of([path])
        assert (found.task, found.labels) == ("opinion", ("neg", "pos"))
        assert "line 61: no arrow" in found.notes[0]
    assert "opinion" in R.tunable_names()
    for number, words in enumerate((["opinion", "a.arrows"], ["a.arrows"])):
        assert main(["new", *words, "-o", f"mine{number}.py"]) == 0
        recipe = weft.load_recipe(f"mine{number}.py")
        assert (type(recipe.task).__name__, recipe.data.rows.labels) == ("Opinion", ("neg", "pos"))
        assert recipe == suggest(open_tables(["a.arrows"])).named(recipe.name).recipe
        assert isinstance(recipe.data.train, R.Source)
        assert recipe.data.train.format == "arrows"
