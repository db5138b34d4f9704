"""Input and output files of the inference and evaluation commands."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from weft import recipe as R
from weft import spec as S
from weft.cli import main
from weft.commands.rows import add_columns
from weft.interop.saving import save

from ..inference.small import TEXTS, ready, tokenizer

HEAD = S.ClassifierHead(num_labels=2, labels=("bad", "good"))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("model")
    save(ready(HEAD).model, folder, to="weft")
    tokenizer().save(folder / "tokenizer.json")
    return str(folder)


def said(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_run_reads_the_columns_that_it_was_trained_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`sentence` alone is what its name would suggest."""
    recipe: Any = SimpleNamespace(
        data=SimpleNamespace(rows=R.LabelledTexts(text="question", second_text="sentence")),
        task=R.Classification(),
        batch=SimpleNamespace(length=64),
        init_from=None,
    )
    monkeypatch.setattr(
        "weft.inference.open_model.open_model", lambda name, device: ready(HEAD, recipe=recipe)
    )
    (tmp_path / "in.jsonl").write_text(
        json.dumps({"sentence": TEXTS[1], "question": TEXTS[0]}) + "\n"
    )
    (own,) = said(capsys, "classify", "run", "--input", str(tmp_path / "in.jsonl"))
    (pair,) = said(capsys, "classify", "run", "--pairs", TEXTS[0], TEXTS[1])
    (told,) = said(
        capsys, "classify", "run", "--input", str(tmp_path / "in.jsonl"), "--columns", "sentence"
    )
    assert own["probability"] == pytest.approx(pair["probability"], abs=1e-6)
    assert own["probability"] != pytest.approx(told["probability"], abs=1e-6)


def test_a_column_of_the_users_stays(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in.jsonl").write_text(json.dumps({"text": TEXTS[0], "prediction": "gold"}) + "\n")
    (row,) = said(capsys, "classify", model, "--input", str(tmp_path / "in.jsonl"))
    assert row["prediction"] == "gold"
    assert row["weft_prediction"] == max(row["probabilities"], key=row["probabilities"].get)
    rows: list[dict[str, Any]] = [{"score.a": 1}, {}]
    add_columns(rows, [{"score": {"a": 2}, "new": 3}, {"score": {"a": 4}, "new": 5}])
    assert rows == [
        {"score.a": 1, "weft_score": {"a": 2}, "new": 3},
        {"weft_score": {"a": 4}, "new": 5},
    ]


def test_words_that_were_given_are_not_given_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "weft.inference.open_model.open_model",
        lambda name, device: ready(S.TokenClassifierHead(num_labels=3, labels=("O", "B-X", "I-X"))),
    )
    (tmp_path / "in.jsonl").write_text('{"words": ["the", "man"]}\n')
    (row,) = said(capsys, "tag", "model", "--input", str(tmp_path / "in.jsonl"))
    assert row.keys() == {"words", "prediction", "probabilities", "entities"}


@pytest.mark.parametrize(
    "words",
    [
        "classify {} a --batch-size 0",
        "fill {} a --top-k 0",
        "evaluate {} --num-beams 0",
        "evaluate {} --max-length -1",
        "evaluate {} --stride 0",
        "evaluate {} --batch-size -2",
    ],
)
def test_a_count_is_at_least_one(
    words: str, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words.format(model).split()) == 2
    error = capsys.readouterr().err
    assert "give an integer of at least 1" in error
    assert error.count("\n") == 1


def test_what_cannot_be_written_is_refused_before_the_work(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "list.json").write_text("[]")
    (tmp_path / "text.json").write_text("hello")
    for words, line in (
        (
            ["classify", "no model", "a", "--output", f"{tmp_path}/none/out.csv"],
            "does not exist",
        ),
        (["classify", "no model", "a", "--output", f"{tmp_path}/out.npy"], "out.npy: cannot write"),
        (
            ["answer", "no model", "--question", "a", "--context", "b", "--output", str(tmp_path)],
            "is a folder",
        ),
        (["evaluate", "no model", "--output", f"{tmp_path}/none/out.json"], "does not exist"),
        (
            ["evaluate", model, "--output", f"{tmp_path}/list.json"],
            "give another file with --output",
        ),
        (
            ["evaluate", model, "--output", f"{tmp_path}/text.json"],
            "give another file with --output",
        ),
    ):
        assert main(words) == 2
        assert line in capsys.readouterr().err


def test_scores_are_shown_before_their_receipt_is_written(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, held: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("weft.commands.receipts.write_receipts", full)
    (tmp_path / "in.jsonl").write_text(
        "".join(json.dumps({"text": text, "label": "good"}) + "\n" for text in TEXTS)
    )
    words = [
        "evaluate",
        model,
        "--task",
        "classify",
        "--data",
        str(tmp_path / "in.jsonl"),
        "--output",
        str(tmp_path / "out.json"),
    ]
    assert main(words) == 2
    told = capsys.readouterr()
    assert "accuracy" in told.out
    assert "no space left" in told.err


def test_a_row_that_cannot_be_read_stops_the_verbs_unless_some_may_be_set_aside(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [json.dumps({"text": text, "label": "good"}) for text in TEXTS]
    (tmp_path / "in.jsonl").write_text("\n".join([lines[0], lines[1][:-3], *lines[2:]]) + "\n")
    words = ["classify", model, "--input", str(tmp_path / "in.jsonl"), "--json"]
    assert main(words) == 2
    error = capsys.readouterr().err
    assert f"1 of {len(TEXTS)} rows cannot be read ({tmp_path}/in.jsonl, line 2: bad JSON" in error
    assert "--max-bad-row-fraction 0.125" in error
    assert main([*words, "--max-bad-row-fraction", "0.125"]) == 0
    told = capsys.readouterr()
    assert [row["text"] for row in json.loads(told.out)] == [TEXTS[0], *TEXTS[2:]]
    assert f"1 of {len(TEXTS)} rows set aside (" in told.err


def test_scores_say_which_rows_they_leave_out_and_stop_above_the_share(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [json.dumps({"text": text, "label": "good"}) for text in TEXTS * 5]
    on = [
        "evaluate",
        model,
        "--task",
        "classify",
        "--data",
        str(tmp_path / "in.jsonl"),
        "--output",
        str(tmp_path / "out.json"),
        "--json",
    ]
    for bad, label, code in ((2, "no class", 0), (3, "no class", 2)):
        wrong = [json.dumps({"text": "a", "label": label})] * bad
        (tmp_path / "in.jsonl").write_text("\n".join([*wrong, *rows[bad:]]) + "\n")
        assert main(on) == code
        assert (
            f"{bad} of 40 rows {'cannot be read' if code else 'set aside'} ({tmp_path}/in.jsonl, "
            "lines 1, 2" in capsys.readouterr().err
        )
    assert main([*on, "--max-bad-row-fraction", "0.1"]) == 0
    assert json.loads(capsys.readouterr().out)["samples"] == 37
