"""Files are understood without a word: format, header, columns, label, task."""
import csv
import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from weft import recipe as R
from weft.tune.guess import guess

from .made import sentences

TEXTS = sentences(40, 3)


def tabbed(path: Path, rows: list[list[Any]], header: list[str] | None = None) -> str:
    text = "".join("\t".join(map(str, row)) + "\n" for row in ([header] if header else []) + rows)
    with (gzip.open(path, "wt") if path.suffix == ".gz" else path.open("w")) as file:
        file.write(text)
    return str(path)


def test_a_table_with_a_header_names_its_columns_and_the_dev_file_may_name_them_otherwise(tmp_path: Path) -> None:
    train = tabbed(tmp_path / "train.tsv.gz", [[i % 2, t] for i, t in enumerate(TEXTS)], ["label", "sentence"])
    dev = tabbed(tmp_path / "dev.tsv.gz", [[i % 2, t] for i, t in enumerate(TEXTS[:9])], ["label", "content"])
    found = guess([train], [dev])
    assert (found.task, found.row) == ("classify", R.Examples(first="sentence", label="label", labels=("0", "1")))
    assert (len(found.rows), len(found.dev_rows)) == (40, 9)
    assert found.dev is not None
    assert (found.dev.names, found.dev.header) == (("label", "sentence"), True)
    assert found.line == f"{train}: 40 rows (tsv), text in 'sentence', 2 classes in 'label' (0, 1): classify"


@pytest.mark.parametrize("header", [["text", "label"], ["Review", "Sentiment"], ["what", "which"]])
def test_the_names_of_short_texts_are_known_or_asked_for(header: list[str], tmp_path: Path) -> None:
    path = tabbed(tmp_path / "short.tsv", [[f"warp {i}", ("up", "down")[i % 2]] for i in range(40)], header)
    found = guess([path], columns=header if header[0] == "what" else [])
    assert (found.train.header, len(found.rows)) == (True, 40)
    assert found.row == R.Examples(first=header[0], label=header[1], labels=("down", "up"))


def test_a_usual_name_that_is_a_label_is_no_header(tmp_path: Path) -> None:
    found = guess([tabbed(tmp_path / "kinds.tsv", [[("question", "order")[i % 2], f"warp {i}"] for i in range(40)])])
    assert (found.train.header, len(found.rows)) == (False, 40)


def test_a_table_without_a_header_has_numbered_columns(tmp_path: Path) -> None:
    """As CoLA is: a source, a label, a mark that is mostly empty, a sentence."""
    path = tabbed(tmp_path / "cola.tsv", [[f"gj{i // 9:02}", i % 3 // 2, "" if i % 3 < 2 else "*", t] for i, t in enumerate(TEXTS)])
    found = guess([path])
    assert (found.train.header, found.train.names, len(found.rows)) == (False, ("0", "1", "2", "3"), 40)
    assert (found.task, found.row) == ("classify", R.Examples(first="3", label="1", labels=("0", "1")))
    assert "(tsv, no header)" in found.line
    named = guess([path], names=["source", "right", "mark", "text"])
    assert named.row == R.Examples(first="text", label="right", labels=("0", "1"))
    assert len(named.rows) == 40


def test_tabs_in_a_csv_and_a_column_with_points_are_a_measure_of_pairs(tmp_path: Path) -> None:
    """As STS-B is: rows of seven columns, at times more."""
    rows = [["main", "file", "2012", f"{i:04}", f"{i % 11 / 2:.3f}", t, TEXTS[-i - 1], *(["more"] if i % 5 == 0 else [])]
            for i, t in enumerate(TEXTS)]
    found = guess([tabbed(tmp_path / "sts.csv", rows)])
    assert (found.task, found.row) == ("regress", R.Examples(first="5", second="6", label="4", number=True))
    assert len(found.rows) == 40


def test_numbers_of_rows_are_no_texts_and_no_labels(tmp_path: Path) -> None:
    """As MRPC is."""
    rows = [[i % 2, 700000 + i, 800000 + i, t, TEXTS[-i - 1]] for i, t in enumerate(TEXTS)]
    found = guess([tabbed(tmp_path / "mrpc.txt", rows, ["Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"])])
    assert (found.task, found.row) == ("pair", R.Examples(first="#1 String", second="#2 String", label="Quality", labels=("0", "1")))


def test_of_a_measure_and_a_class_the_task_decides(tmp_path: Path) -> None:
    rows = [[t, TEXTS[-i - 1], f"{i / 7:.2f}", ["yes", "no", "maybe"][i % 3]] for i, t in enumerate(TEXTS)]
    path = tabbed(tmp_path / "sick.txt", rows, ["a", "b", "relatedness", "judgment"])
    assert guess([path]).row == R.Examples(first="a", second="b", label="relatedness", number=True)
    classes = R.Examples(first="a", second="b", label="judgment", labels=("maybe", "no", "yes"))
    assert guess([path], task="pair").row == classes
    assert guess([path], columns=["a", "b", "judgment"]).row == classes
    assert guess([path], label="judgment").row == classes
    assert guess([path], columns=["b"], label="judgment").row == R.Examples(first="b", label="judgment", labels=("maybe", "no", "yes"))


def test_commas_json_lines_and_parquet_are_read_alike(tmp_path: Path) -> None:
    rows = [{"id": i, "review": f"{t}, \"so\"", "stars": i % 5} for i, t in enumerate(TEXTS)]
    with (tmp_path / "a.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    for ending in ("csv", "jsonl", "parquet"):
        found = guess([str(tmp_path / f"a.{ending}")])
        assert (found.task, found.row) == ("classify", R.Examples(first="review", label="stars", labels=("0", "1", "2", "3", "4")))
        assert [row["review"] for row in found.rows] == [row["review"] for row in rows]


def test_words_with_tags_are_tagging_and_of_several_columns_the_marked_one_is_meant(tmp_path: Path) -> None:
    path = tmp_path / "train.txt"
    path.write_text("".join(f"{a} NN B-LOC 0\n{b} VB O 0\n\n" for a, b in (t.split()[:2] for t in TEXTS)))
    found = guess([str(path)], [str(path)])
    assert (found.task, found.row) == ("tag", R.Tagged(labels=("O", "B-LOC")))
    assert found.rows[0] == {"words": TEXTS[0].split()[:2], "column1": ["NN", "VB"], "tags": ["B-LOC", "O"]}
    (tmp_path / "a.jsonl").write_text('{"tokens": ["a", "b"], "ner_tags": ["O", "B-X"]}\n' * 3)
    assert guess([str(tmp_path / "a.jsonl")]).row == R.Tagged(words="tokens", tags="ner_tags", labels=("O", "B-X"))


def test_a_question_with_endings_is_a_choice(tmp_path: Path) -> None:
    rows = [{"startphrase": t, **{f"ending{k}": TEXTS[(i + k) % 40] for k in range(3)}, "label": i % 3} for i, t in enumerate(TEXTS)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = guess([str(tmp_path / "a.jsonl")])
    assert (found.task, found.row) == ("choose", R.Choices(context="startphrase", endings=("ending0", "ending1", "ending2")))


def test_more_than_ten_endings_are_read_in_their_order(tmp_path: Path) -> None:
    names = tuple(f"ending{k}" for k in range(12))
    rows = [{"context": t, **{name: TEXTS[(i + k) % 40] for k, name in enumerate(names)}, "label": i % 12} for i, t in enumerate(TEXTS)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert guess([str(tmp_path / "a.jsonl")]).row == R.Choices(endings=names)


def test_rows_may_lack_columns_and_a_label_that_is_never_there_is_named(tmp_path: Path) -> None:
    def path(*rows: dict[str, Any]) -> str:
        (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return str(tmp_path / "a.jsonl")

    some: list[dict[str, Any]] = [{"text": t, "mark": i % 2, "kind": "xy"[i % 2]} for i, t in enumerate(TEXTS)]
    for task in (None, "classify"):
        assert guess([path(*some, {"mark": 1, "kind": "x"}, {"text": TEXTS[0], "mark": 0})], task=task).row == R.Examples(
            label="mark", labels=("0", "1"))
    with pytest.raises(ValueError, match="label is empty in every row; name the column of the labels with --label"):
        guess([path(*({"text": t, "label": ""} for t in TEXTS))])
    tagged = [{"tokens": t.split(), "ner_tags": ["O"] * len(t.split())} for t in TEXTS]
    assert guess([path(*tagged, {"tokens": ["a"]})]).row == R.Tagged(words="tokens", tags="ner_tags", labels=("O",))
    with pytest.raises(ValueError, match="ner_tags is empty in every row"):
        guess([path(*({"tokens": ["a"], "ner_tags": []} for _ in TEXTS))])


def test_squads_json_is_answering(tmp_path: Path) -> None:
    asked = {"id": "q", "question": "what?", "answers": [{"text": "loom", "answer_start": 4}]}
    article = {"title": "t", "paragraphs": [{"context": "the loom", "qas": [asked, {**asked, "id": "r", "is_impossible": True}]}]}
    with gzip.open(tmp_path / "a.json.gz", "wt") as file:
        json.dump({"version": "2", "data": [article]}, file)
    found = guess([str(tmp_path / "a.json.gz")])
    assert (found.task, found.row, len(found.rows)) == ("answer", R.Questions(), 2)
    assert found.line.endswith("2 questions (SQuAD), 1 without an answer: answer")


def test_what_is_in_doubt_is_asked_in_one_line(tmp_path: Path) -> None:
    many = tabbed(tmp_path / "many.tsv", [[i, t] for i, t in enumerate(TEXTS)], ["label", "text"])
    with pytest.raises(ValueError, match="40 whole numbers, which may be classes or a measure; say --task classify or --task regress"):
        guess([many])
    assert guess([many], task="regress").row == R.Examples(number=True)
    plain = tabbed(tmp_path / "plain.tsv", [[t, TEXTS[-i - 1]] for i, t in enumerate(TEXTS)], ["a", "b"])
    with pytest.raises(ValueError, match="which of 'a', 'b' is the label"):
        guess([plain])
    with pytest.raises(ValueError, match="no column 'texts' among 'label', 'text'; did you mean 'text'"):
        guess([many], columns=["texts", "label"])
    with pytest.raises(ValueError, match="did you mean 'classify'"):
        guess([many], task="clasify")
    with pytest.raises(ValueError, match="pair reads two texts, not 'text'"):
        guess([many], task="pair")
    one = tabbed(tmp_path / "one.tsv", [["x", t] for t in TEXTS], ["label", "text"])
    with pytest.raises(ValueError, match="every row has label = 'x'"):
        guess([one])
    with pytest.raises(ValueError, match="label is 'x' in a row, not a number"):
        guess([one], task="regress")
    (tmp_path / "prose.txt").write_text("Once upon a time.\nThere was a loom.\n")
    with pytest.raises(ValueError, match="neither a table"):
        guess([str(tmp_path / "prose.txt")])
    with pytest.raises(ValueError, match="which is what the task answer reads"):
        guess([many], task="answer")
