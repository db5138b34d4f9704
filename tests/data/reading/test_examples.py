"""Detection of format, header, columns, label and task from files without options."""

import csv
import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from weft import recipe as R

from ...commands.tuned_data import examples_of, sentences

TEXTS = sentences(40, 3)


def tabbed(path: Path, rows: list[list[Any]], header: list[str] | None = None) -> str:
    text = "".join("\t".join(map(str, row)) + "\n" for row in ([header] if header else []) + rows)
    with gzip.open(path, "wt") if path.suffix == ".gz" else path.open("w") as file:
        file.write(text)
    return str(path)


def test_a_table_with_a_header_names_its_columns_and_the_dev_file_may_name_them_otherwise(
    tmp_path: Path,
) -> None:
    train = tabbed(
        tmp_path / "train.tsv.gz", [[i % 2, t] for i, t in enumerate(TEXTS)], ["label", "sentence"]
    )
    dev = tabbed(
        tmp_path / "dev.tsv.gz", [[i % 2, t] for i, t in enumerate(TEXTS[:9])], ["label", "content"]
    )
    found = examples_of([train], [dev])
    assert (found.task, found.row) == (
        "classify",
        R.LabelledTexts(text="sentence", label="label", labels=("0", "1")),
    )
    assert (len(found.rows), len(found.valid_rows)) == (40, 9)
    assert found.valid is not None
    assert (found.valid.column_names, found.valid.has_header) == (("label", "sentence"), True)
    assert (
        found.summary
        == f"{train}: 40 rows (tsv), text in 'sentence', 2 classes in 'label' (0, 1): classify"
    )


@pytest.mark.parametrize("header", [["text", "label"], ["Review", "Sentiment"], ["what", "which"]])
def test_the_names_of_short_texts_are_known_or_asked_for(header: list[str], tmp_path: Path) -> None:
    path = tabbed(
        tmp_path / "short.tsv", [[f"warp {i}", ("up", "down")[i % 2]] for i in range(40)], header
    )
    found = examples_of([path], columns=header if header[0] == "what" else [])
    assert (found.train.has_header, len(found.rows)) == (True, 40)
    assert found.row == R.LabelledTexts(text=header[0], label=header[1], labels=("down", "up"))


def test_a_usual_name_that_is_a_label_is_no_header(tmp_path: Path) -> None:
    found = examples_of(
        [
            tabbed(
                tmp_path / "kinds.tsv",
                [[("question", "order")[i % 2], f"warp {i}"] for i in range(40)],
            )
        ]
    )
    assert (found.train.has_header, len(found.rows)) == (False, 40)


def test_a_table_without_a_header_has_numbered_columns(tmp_path: Path) -> None:
    """As CoLA is: a source, a label, a mark that is mostly empty, a sentence."""
    path = tabbed(
        tmp_path / "cola.tsv",
        [[f"gj{i // 9:02}", i % 3 // 2, "" if i % 3 < 2 else "*", t] for i, t in enumerate(TEXTS)],
    )
    found = examples_of([path])
    assert (found.train.has_header, found.train.column_names, len(found.rows)) == (
        False,
        ("0", "1", "2", "3"),
        40,
    )
    assert (found.task, found.row) == (
        "classify",
        R.LabelledTexts(text="3", label="1", labels=("0", "1")),
    )
    assert "(tsv, no header)" in found.summary
    named = examples_of([path], names=["source", "right", "mark", "text"])
    assert named.row == R.LabelledTexts(text="text", label="right", labels=("0", "1"))
    assert len(named.rows) == 40


def test_tabs_in_a_csv_and_a_column_with_points_are_a_measure_of_pairs(tmp_path: Path) -> None:
    """As STS-B is: rows of seven columns, at times more."""
    rows = [
        [
            "main",
            "file",
            "2012",
            f"{i:04}",
            f"{i % 11 / 2:.3f}",
            t,
            TEXTS[-i - 1],
            *(["more"] if i % 5 == 0 else []),
        ]
        for i, t in enumerate(TEXTS)
    ]
    found = examples_of([tabbed(tmp_path / "sts.csv", rows)])
    assert (found.task, found.row) == (
        "regress",
        R.LabelledTexts(text="5", second_text="6", label="4", numeric_label=True),
    )
    assert len(found.rows) == 40


def test_numbers_of_rows_are_no_texts_and_no_labels(tmp_path: Path) -> None:
    """As MRPC is."""
    rows = [[i % 2, 700000 + i, 800000 + i, t, TEXTS[-i - 1]] for i, t in enumerate(TEXTS)]
    found = examples_of(
        [
            tabbed(
                tmp_path / "mrpc.txt", rows, ["Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"]
            )
        ]
    )
    assert (found.task, found.row) == (
        "pair",
        R.LabelledTexts(
            text="#1 String", second_text="#2 String", label="Quality", labels=("0", "1")
        ),
    )


def test_of_a_measure_and_a_class_the_task_decides(tmp_path: Path) -> None:
    rows = [
        [t, TEXTS[-i - 1], f"{i / 7:.2f}", ["yes", "no", "maybe"][i % 3]]
        for i, t in enumerate(TEXTS)
    ]
    path = tabbed(tmp_path / "sick.txt", rows, ["a", "b", "relatedness", "judgment"])
    assert examples_of([path]).row == R.LabelledTexts(
        text="a", second_text="b", label="relatedness", numeric_label=True
    )
    classes = R.LabelledTexts(
        text="a", second_text="b", label="judgment", labels=("maybe", "no", "yes")
    )
    assert examples_of([path], task="pair").row == classes
    assert examples_of([path], columns=["a", "b", "judgment"]).row == classes
    assert examples_of([path], label="judgment").row == classes
    assert examples_of([path], columns=["b"], label="judgment").row == R.LabelledTexts(
        text="b", label="judgment", labels=("maybe", "no", "yes")
    )


def test_commas_json_lines_and_parquet_are_read_alike(tmp_path: Path) -> None:
    rows = [{"id": i, "review": f'{t}, "so"', "stars": i % 5} for i, t in enumerate(TEXTS)]
    with (tmp_path / "a.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    for ending in ("csv", "jsonl", "parquet"):
        found = examples_of([str(tmp_path / f"a.{ending}")])
        assert (found.task, found.row) == (
            "classify",
            R.LabelledTexts(text="review", label="stars", labels=("0", "1", "2", "3", "4")),
        )
        assert [row["review"] for row in found.rows] == [row["review"] for row in rows]


def test_words_with_tags_are_tagging_and_of_several_columns_the_marked_one_is_meant(
    tmp_path: Path,
) -> None:
    path = tmp_path / "train.txt"
    path.write_text(
        "".join(f"{a} NN B-LOC 0\n{b} VB O 0\n\n" for a, b in (t.split()[:2] for t in TEXTS))
    )
    found = examples_of([str(path)], [str(path)])
    assert (found.task, found.row) == ("tag", R.TaggedWords(labels=("O", "B-LOC")))
    assert found.rows[0] == {
        "words": TEXTS[0].split()[:2],
        "column1": ["NN", "VB"],
        "tags": ["B-LOC", "O"],
    }
    (tmp_path / "a.jsonl").write_text('{"tokens": ["a", "b"], "ner_tags": ["O", "B-X"]}\n' * 3)
    assert examples_of([str(tmp_path / "a.jsonl")]).row == R.TaggedWords(
        words="tokens", tags="ner_tags", labels=("O", "B-X")
    )


def test_a_question_with_endings_is_a_choice(tmp_path: Path) -> None:
    rows = [
        {"startphrase": t, **{f"ending{k}": TEXTS[(i + k) % 40] for k in range(3)}, "label": i % 3}
        for i, t in enumerate(TEXTS)
    ]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = examples_of([str(tmp_path / "a.jsonl")])
    assert (found.task, found.row) == (
        "choose",
        R.ChoiceQuestions(context="startphrase", endings=("ending0", "ending1", "ending2")),
    )


def test_more_than_ten_endings_are_read_in_their_order(tmp_path: Path) -> None:
    names = tuple(f"ending{k}" for k in range(12))
    rows = [
        {
            "context": t,
            **{name: TEXTS[(i + k) % 40] for k, name in enumerate(names)},
            "label": i % 12,
        }
        for i, t in enumerate(TEXTS)
    ]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert examples_of([str(tmp_path / "a.jsonl")]).row == R.ChoiceQuestions(endings=names)


def test_rows_may_lack_columns_and_a_label_that_is_never_there_is_named(tmp_path: Path) -> None:
    def path(*rows: dict[str, Any]) -> str:
        (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return str(tmp_path / "a.jsonl")

    some: list[dict[str, Any]] = [
        {"text": t, "mark": i % 2, "kind": "xy"[i % 2]} for i, t in enumerate(TEXTS)
    ]
    for task in (None, "classify"):
        assert examples_of(
            [path(*some, {"mark": 1, "kind": "x"}, {"text": TEXTS[0], "mark": 0})], task=task
        ).row == R.LabelledTexts(label="mark", labels=("0", "1"))
    with pytest.raises(
        ValueError,
        match=r"label is empty in every row; name the columns: --columns TEXT \[TEXT\] LABEL",
    ):
        examples_of([path(*({"text": t, "label": ""} for t in TEXTS))])
    tagged = [{"tokens": t.split(), "ner_tags": ["O"] * len(t.split())} for t in TEXTS]
    assert examples_of([path(*tagged, {"tokens": ["a"]})]).row == R.TaggedWords(
        words="tokens", tags="ner_tags", labels=("O",)
    )
    with pytest.raises(ValueError, match="ner_tags is empty in every row"):
        examples_of([path(*({"tokens": ["a"], "ner_tags": []} for _ in TEXTS))])


def test_squads_json_is_answering(tmp_path: Path) -> None:
    asked = {"id": "q", "question": "what?", "answers": [{"text": "loom", "answer_start": 4}]}
    article = {
        "title": "t",
        "paragraphs": [
            {"context": "the loom", "qas": [asked, {**asked, "id": "r", "is_impossible": True}]}
        ],
    }
    with gzip.open(tmp_path / "a.json.gz", "wt") as file:
        json.dump({"version": "2", "data": [article]}, file)
    found = examples_of([str(tmp_path / "a.json.gz")])
    assert (found.task, found.row, len(found.rows)) == ("answer", R.ContextQuestions(), 2)
    assert found.summary.endswith("2 questions (SQuAD), 1 without an answer: answer")
    with pytest.raises(
        ValueError, match="in the format squad, which is what the task answer reads"
    ):
        examples_of([str(tmp_path / "a.json.gz")], task="classify")


def test_what_is_in_doubt_is_asked_in_one_line(tmp_path: Path) -> None:
    many = tabbed(tmp_path / "many.tsv", [[i, t] for i, t in enumerate(TEXTS)], ["label", "text"])
    with pytest.raises(
        ValueError,
        match="40 distinct whole numbers, which may be classes or quantities; give --task "
        "classify or --task regress",
    ):
        examples_of([many])
    assert examples_of([many], task="regress").row == R.LabelledTexts(numeric_label=True)
    plain = tabbed(
        tmp_path / "plain.tsv", [[t, TEXTS[-i - 1]] for i, t in enumerate(TEXTS)], ["a", "b"]
    )
    with pytest.raises(
        ValueError, match="no column is recognised as the label; available: 'a', 'b'"
    ):
        examples_of([plain])
    with pytest.raises(
        ValueError, match="no column 'texts' among 'label', 'text'; did you mean 'text'"
    ):
        examples_of([many], columns=["texts", "label"])
    with pytest.raises(ValueError, match="did you mean 'classify'"):
        examples_of([many], task="clasify")
    with pytest.raises(ValueError, match="the task needs two texts, not 'text'"):
        examples_of([many], task="pair")
    one = tabbed(tmp_path / "one.tsv", [["x", t] for t in TEXTS], ["label", "text"])
    with pytest.raises(ValueError, match="every row has label = 'x'"):
        examples_of([one])
    with pytest.raises(ValueError, match="label is 'x' in a row, not a number"):
        examples_of([one], task="regress")
    (tmp_path / "prose.txt").write_text("Once upon a time.\nThere was a loom.\n")
    with pytest.raises(ValueError, match=r"prose\.txt is plain text"):
        examples_of([str(tmp_path / "prose.txt")])
    with pytest.raises(ValueError, match="which is what the task answer reads"):
        examples_of([many], task="answer")


# Files that are not quite right


def commas(path: Path, rows: list[list[Any]], header: list[str]) -> str:
    path.write_text("".join(",".join(map(str, row)) + "\n" for row in [header, *rows]))
    return str(path)


def test_broken_json_lines_stop_it_or_are_set_aside_aloud(tmp_path: Path) -> None:
    lines = [json.dumps({"text": t, "label": i % 2}) for i, t in enumerate(sentences(75, 3))]
    path = tmp_path / "a.jsonl"
    path.write_text(
        "".join((line[:-4] if i % 5 == 0 else line) + "\n" for i, line in enumerate(lines))
    )
    stop = (
        r"15 of 75 rows cannot be read \(.*a\.jsonl, lines 1, 6, 11, 16, 21, …: bad "
        r"JSON.*--max-bad-row-fraction 0\.2"
    )
    with pytest.raises(ValueError, match=stop):
        examples_of([str(path)])
    found = examples_of([str(path)], max_bad_rows=0.2)
    assert len(found.rows) == 60
    assert found.notes[0].startswith(
        f"15 of 75 rows set aside ({path}, lines 1, 6, 11, 16, 21, …: bad JSON"
    )
    path.write_text("".join((line[:-4] if i == 7 else line) + "\n" for i, line in enumerate(lines)))
    found = examples_of([str(path)], [str(path)])
    assert [note.split(":")[0] for note in found.notes] == [
        f"1 of 75 {what}rows set aside ({path}, line 8" for what in ("", "validation ")
    ]


def test_commas_without_quotes_make_no_classes(tmp_path: Path) -> None:
    rows = [[t, "ab"[i % 2]] for i, t in enumerate(sentences(60, 3))]
    path = commas(
        tmp_path / "a.csv", [*rows[:20], ["one, and two", "a"], *rows[20:]], ["text", "label"]
    )
    found = examples_of([path])
    assert found.labels == ("a", "b")
    assert [row["text"] for row in found.rows] == [text for text, _ in rows]
    assert (
        "line 22: 3 columns instead of 2; a text with the delimiter needs quotes" in found.notes[0]
    )
    with pytest.raises(ValueError, match=r"12 of 60 rows cannot be read .* 3 columns instead of 2"):
        examples_of(
            [
                commas(
                    tmp_path / "b.csv",
                    [[f"so, {t}" if i % 5 == 0 else t, y] for i, (t, y) in enumerate(rows)],
                    ["text", "label"],
                )
            ]
        )


@pytest.mark.parametrize("broken", ["abc", "nan", "inf", "-inf", ""])
@pytest.mark.parametrize("header", [["text", "score"], ["what", "how much"]])
def test_one_broken_number_leaves_a_measure_a_measure(
    broken: str, header: list[str], tmp_path: Path
) -> None:
    rows = [
        [t, broken if i == 17 else f"{i % 9 / 2 + 0.25}"] for i, t in enumerate(sentences(60, 3))
    ]
    found = examples_of([commas(tmp_path / "a.csv", rows, header)])
    assert found.row == R.LabelledTexts(text=header[0], label=header[1], numeric_label=True)
    assert (found.task, len(found.rows)) == ("regress", 59)
    assert (
        "line 19: empty" if not broken else f"line 19: {header[1]} is {broken!r}, not a number"
    ) in found.notes[0]


def test_one_broken_whole_number_makes_no_class_unless_classes_are_asked_for(
    tmp_path: Path,
) -> None:
    path = commas(
        tmp_path / "a.csv",
        [[t, "abc" if i == 17 else i % 2] for i, t in enumerate(sentences(60, 3))],
        ["text", "label"],
    )
    found = examples_of([path])
    assert (found.labels, len(found.rows)) == (("0", "1"), 59)
    assert "line 19: label 'abc' is not one of 0, 1" in found.notes[0]
    assert examples_of([path], task="classify").labels == ("0", "1", "abc")


def test_columns_of_the_same_name_are_refused_by_name(tmp_path: Path) -> None:
    rows = [[t, TEXTS[-i - 1], i % 2] for i, t in enumerate(TEXTS)]
    for header in (["text", "text", "label"], ["a", "a", "b"]):
        path = commas(tmp_path / "a.csv", rows, header)
        with pytest.raises(
            ValueError,
            match=rf"a\.csv: more than one column is named '{header[0]}'; rename them .* "
            r"--column-names",
        ):
            examples_of([path])
    named = examples_of([path], names=["first", "second", "label"])
    assert (named.row, len(named.rows)) == (
        R.LabelledTexts(text="first", second_text="second", labels=("0", "1")),
        40,
    )


@pytest.mark.parametrize("texts", [TEXTS[:5], ["good", "bad", "text"], ["label", "text"]])
def test_text_and_label_are_a_header_however_often_texts_repeat(
    texts: list[str], tmp_path: Path
) -> None:
    found = examples_of(
        [
            commas(
                tmp_path / "a.csv",
                [[texts[i % len(texts)], i % 2] for i in range(60)],
                ["text", "label"],
            )
        ]
    )
    assert (found.train.has_header, len(found.rows), found.row) == (
        True,
        60,
        R.LabelledTexts(labels=("0", "1")),
    )


def test_latin_1_is_named_with_a_fix(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(
        b"text,label\n"
        + b"".join(f"{t} é,{i % 2}\n".encode("latin-1") for i, t in enumerate(TEXTS))
    )
    with pytest.raises(
        ValueError, match=r"lines 2, 3, 4, 5, 6, …: not UTF-8: byte 0xe9 .*iconv -f latin1 -t utf-8"
    ):
        examples_of([str(tmp_path / "a.csv")])


@pytest.mark.parametrize("header", ["größe,text"])
def test_a_broken_header_does_not_hide_the_encoding(tmp_path: Path, header: str) -> None:
    rows = [f"{text.replace(',', ' ')},{i % 2}" for i, text in enumerate(TEXTS)]
    rows[-1] = f"é{rows[-1]}"
    (tmp_path / "a.csv").write_text("\n".join([header, *rows]), "latin-1")
    with pytest.raises(ValueError, match="iconv -f latin1 -t utf-8"):
        examples_of([str(tmp_path / "a.csv")], task="classify")


@pytest.mark.parametrize("code", ["utf-16le", "utf-16be"])
@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.txt"])
def test_utf_16_without_its_mark_is_no_table(tmp_path: Path, code: str, name: str) -> None:
    rows = [f"{text.replace(',', ' ')},{i % 2}" for i, text in enumerate(TEXTS)]
    text = "\n".join(["text,label", *rows])
    (tmp_path / name).write_bytes(text.replace(",", "\t" if name == "a.tsv" else ",").encode(code))
    with pytest.raises(ValueError, match=f"iconv -f {code} -t utf-8"):
        examples_of([str(tmp_path / name)], task="classify")


def test_classes_that_mostly_occur_once_are_asked_about(tmp_path: Path) -> None:
    path = commas(
        tmp_path / "a.csv",
        [[t, f"name{i if i % 2 else 0}"] for i, t in enumerate(TEXTS)],
        ["text", "label"],
    )
    with pytest.raises(
        ValueError,
        match=r"label has 21 classes, of which 20 occur once \(name1, .*give --task classify",
    ):
        examples_of([path])
    assert len(examples_of([path], task="classify").labels or ()) == 21


def test_an_open_quote_loses_its_own_line_alone(tmp_path: Path) -> None:
    rows = [[('"' if i == 7 else "") + t, "ab"[i % 2]] for i, t in enumerate(sentences(60, 3))]
    found = examples_of([commas(tmp_path / "a.csv", rows, ["text", "label"])])
    assert len(found.rows) == 59
    assert "line 9: bad CSV: unexpected end of data" in found.notes[0]


def test_files_without_a_row_to_validate_on_and_images_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text,label\n" + "a b c,x\nd e f,y\n" * 4)
    (tmp_path / "header.csv").write_text("text,label\n")
    with pytest.raises(ValueError, match=r"header\.csv has no row for validation"):
        examples_of([str(tmp_path / "a.csv")], [str(tmp_path / "header.csv")])
    for kind in ("cat", "dog"):
        (tmp_path / "images" / kind).mkdir(parents=True)
        Image.new("RGB", (4, 4)).save(tmp_path / "images" / kind / "0.png")
    for folder in ("images", "holiday photographs"):  # whose file names look like texts
        (tmp_path / "images").rename(tmp_path / folder)
        with pytest.raises(ValueError, match="images, not text"):
            examples_of([str(tmp_path / folder)], task="classify")
        (tmp_path / folder).rename(tmp_path / "images")
