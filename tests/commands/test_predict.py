"""Inference and evaluation commands on the command line."""

import csv
import io
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import weft
from tests.whole_runs import train
from weft import recipe as R
from weft import spec as S
from weft.cli import main
from weft.interop.saving import save

from ..inference.small import TEXTS, ready, tokenizer

HEADS: dict[str, Any] = {
    "classify": S.ClassifierHead(num_labels=2, labels=("bad", "good")),
    "tag": S.TokenClassifierHead(num_labels=3, labels=("O", "B-X", "I-X")),
    "answer": S.SpanHead(),
    "fill": None,
    "embed": S.NoHead(),
    "regress": S.ClassifierHead(num_labels=1),
    "choose": S.ClassifierHead(num_labels=1),
}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A folder a head."""
    folder = tmp_path_factory.mktemp("models")
    for name, head in HEADS.items():
        save(ready(head).model, folder / name, to="weft")
        tokenizer().save(folder / name / "tokenizer.json")
    save(ready(None, "gpt2").model, folder / "go on", to="weft")
    tokenizer().save(folder / "go on" / "tokenizer.json")
    return {path.name: str(path) for path in folder.iterdir()}


def said(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_texts_files_and_pairs_are_classified_alike(
    models: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = models["classify"]
    typed = said(capsys, "classify", name, *TEXTS)
    assert [row["text"] for row in typed] == TEXTS
    assert all(
        row["prediction"] == max(row["probabilities"], key=row["probabilities"].get)
        for row in typed
    )
    (tmp_path / "in.csv").write_text(
        "id,sentence\n" + "".join(f'{i},"{text}"\n' for i, text in enumerate(TEXTS))
    )
    assert (
        main(
            [
                "classify",
                name,
                "--input",
                str(tmp_path / "in.csv"),
                "--output",
                str(tmp_path / "out.csv"),
            ]
        )
        == 0
    )
    assert "reading 'sentence' as text" in capsys.readouterr().err
    with open(tmp_path / "out.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["id"], row["prediction"]) for row in rows] == [
        (str(i), row["prediction"]) for i, row in enumerate(typed)
    ]
    assert [float(row["probabilities.good"]) for row in rows] == pytest.approx(
        [row["probabilities"]["good"] for row in typed], abs=1e-6
    )
    (tmp_path / "in.jsonl").write_text(
        "".join(json.dumps({"premise": a, "hypothesis": b}) + "\n" for a, b in pairwise(TEXTS))
    )
    paired = said(capsys, "classify", name, "--input", str(tmp_path / "in.jsonl"))
    typed = said(capsys, "classify", name, "--pairs", TEXTS[0], TEXTS[1])
    assert paired[0]["probability"] == pytest.approx(typed[0]["probability"], abs=1e-6)
    for other in ([TEXTS[0]], ["--pairs", TEXTS[0], TEXTS[2]]):
        (row,) = said(capsys, "classify", name, *other)
        assert paired[0]["probability"] != pytest.approx(row["probability"], abs=1e-6)


def test_standard_input_is_lines_of_text_or_of_json(
    models: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    both = []
    for given in (
        "\n".join(TEXTS) + "\n",
        "".join(json.dumps({"text": text}) + "\n" for text in TEXTS),
    ):
        monkeypatch.setattr("sys.stdin", io.StringIO(given))
        both.append(said(capsys, "classify", models["classify"]))
    assert both[0] == both[1] == said(capsys, "classify", models["classify"], *TEXTS)


def test_words_are_tagged_and_entities_named(
    models: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (row,) = said(capsys, "tag", models["tag"], "The man went to Paris, France.")
    assert row["words"] == ["The", "man", "went", "to", "Paris", ",", "France", "."]
    assert len(row["prediction"]) == 8
    (tmp_path / "in.conll").write_text("the X\nman Y\n\na Z\n")
    rows = said(capsys, "tag", models["tag"], "--input", str(tmp_path / "in.conll"))
    assert [row["words"] for row in rows] == [["the", "man"], ["a"]]
    (row,) = said(capsys, "tag", models["tag"], "--pre-split", "went to Paris, France.")
    assert row["words"] == ["went", "to", "Paris,", "France."]


SQUAD = {
    "version": "2.0",
    "data": [
        {
            "title": "t",
            "paragraphs": [
                {
                    "context": TEXTS[1],
                    "qas": [
                        {
                            "id": "a",
                            "question": "what runs ?",
                            "answers": [{"text": "a dog", "answer_start": 0}],
                            "is_impossible": False,
                        },
                        {
                            "id": "b",
                            "question": "what flies ?",
                            "answers": [],
                            "is_impossible": True,
                        },
                    ],
                }
            ],
        }
    ],
}


def test_questions_are_answered_from_words_rows_and_squads_own_files(
    models: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (typed,) = said(
        capsys, "answer", models["answer"], "--question", "what runs ?", "--context", TEXTS[1]
    )
    assert typed["prediction"] == TEXTS[1][typed["start"] : typed["end"]]
    (tmp_path / "in.jsonl").write_text(
        json.dumps({"question": "what runs ?", "context": TEXTS[1]}) + "\n"
    )
    assert said(capsys, "answer", models["answer"], "--input", str(tmp_path / "in.jsonl")) == [
        typed
    ]
    (tmp_path / "named.json").write_text(json.dumps([{"q": "what runs ?", "passage": TEXTS[1]}]))
    (named,) = said(
        capsys,
        "answer",
        models["answer"],
        "--input",
        str(tmp_path / "named.json"),
        "--columns",
        "q",
        "passage",
    )
    assert named == {"q": "what runs ?", "passage": TEXTS[1]} | {
        n: typed[n] for n in typed if n not in ("question", "context")
    }
    (tmp_path / "in.json").write_text(json.dumps(SQUAD))
    for threshold, wanted in (("1e9", typed["prediction"]), ("-1000000", "")):
        assert (
            main(
                [
                    "answer",
                    models["answer"],
                    "--input",
                    str(tmp_path / "in.json"),
                    "--output",
                    str(tmp_path / "out.json"),
                    "--no-answer-threshold",
                    threshold,
                ]
            )
            == 0
        )
        assert json.loads((tmp_path / "out.json").read_text())["a"] == wanted
    assert main(["answer", models["answer"], "--question", "why ?"]) == 2


def test_a_context_without_tokens_has_scores_that_json_knows(
    models: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    (typed,) = said(
        capsys, "answer", models["answer"], "--question", "why not ?", "--context", "\u200b"
    )
    assert (typed["prediction"], typed["score"], typed["no_answer"]) == ("", None, None)


def test_vectors_go_to_numpy_and_hidden_words_to_json(
    models: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        main(
            ["embed", models["embed"], *TEXTS, "--output", str(tmp_path / "out.npy"), "--normalise"]
        )
        == 0
    )
    vectors = np.load(tmp_path / "out.npy", allow_pickle=False)
    assert vectors.shape == (len(TEXTS), 32)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1.0, abs=1e-6)
    capsys.readouterr()
    (row,) = said(capsys, "fill", models["fill"], "paris is the [MASK] of france", "--top-k", "3")
    (guesses,) = row["guesses"]
    assert len(guesses) == 3
    assert guesses[0]["probability"] >= guesses[1]["probability"]


def test_an_ending_in_capitals_is_the_same_ending(models: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "IN.CSV").write_text("text\nhello\n")
    assert (
        main(
            [
                "classify",
                models["classify"],
                "--input",
                str(tmp_path / "IN.CSV"),
                "--output",
                str(tmp_path / "OUT.CSV"),
            ]
        )
        == 0
    )
    assert [line.split(",")[0] for line in (tmp_path / "OUT.CSV").read_text().splitlines()] == [
        "text",
        "hello",
    ]


def test_words_behind_the_models_end_are_told_of(
    models: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tag", models["tag"], "a dog", "a dog runs " * 40]) == 0
    assert "1 of 2 rows exceed the model's maximum length" in capsys.readouterr().err


def test_no_words_have_no_tags(models: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "tag", models["tag"], "")[0]["prediction"] == []


def test_unsupported_requests_are_one_line_errors(
    models: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in.csv").write_text("a,b\n1,2\n")
    (tmp_path / "none.csv").write_text("text,label\n")
    (tmp_path / "words.jsonl").write_text('{"words": ["a"]}\n{"words": "a dog"}\n')
    (tmp_path / "asked.jsonl").write_text('{"question": 5, "context": "a b c"}\n')
    for words, line in (
        (["tag", models["classify"], "hi"], "--task tag"),
        (["classify", models["classify"], "--pairs", "one"], "an even number of texts"),
        (
            ["classify", models["classify"], "--input", str(tmp_path / "in.csv"), "--columns", "c"],
            "no column 'c'",
        ),
        (["fill", models["fill"], "nothing"], "has no mask"),
        (["evaluate", models["tag"]], "--task"),
        (["evaluate", models["tag"], "--task", "tag"], "--data"),
        (
            ["evaluate", models["fill"], "--task", "classify", "--data", str(tmp_path / "in.csv")],
            "--task classify",
        ),
        (
            [
                "evaluate",
                models["classify"],
                "--task",
                "classify",
                "--data",
                str(tmp_path / "none.csv"),
            ],
            "no row is readable",
        ),
        (
            ["tag", models["tag"], "--input", str(tmp_path / "words.jsonl")],
            "row 2 has no list of words in 'words'",
        ),
        (
            ["answer", models["answer"], "--input", str(tmp_path / "asked.jsonl")],
            "a question and a context",
        ),
    ):
        assert main(words) == 2
        err = capsys.readouterr().err
        assert line in err
        assert err.count("\n") == 1


# Scores

ON: dict[str, Any] = {
    "classify": [{"text": t, "label": ("bad", "good")[i % 2]} for i, t in enumerate(TEXTS)],
    "regress": [{"sentence1": t, "sentence2": t, "score": i / 2} for i, t in enumerate(TEXTS)],
    "choose": [
        {"context": t, "ending0": "yes", "ending1": "no", "label": i % 2}
        for i, t in enumerate(TEXTS)
    ],
    "tag": [
        {"tokens": t.split(), "ner_tags": ["B-X"] + ["O"] * (len(t.split()) - 1)} for t in TEXTS
    ],
    "fill": [{"text": t} for t in TEXTS],
    "perplexity": [{"text": t} for t in TEXTS],
}
NAMES = {
    "classify": "matthews",
    "regress": "spearman",
    "choose": "accuracy",
    "tag": "f1_X",
    "fill": "accuracy of hidden tokens",
    "perplexity": "bits per byte",
}


@pytest.mark.parametrize("task", list(ON))
def test_a_model_without_a_recipe_is_scored_on_a_file_by_its_task(
    task: str, models: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ON[task]))
    name = models["go on" if task == "perplexity" else task]
    found = said(
        capsys,
        "evaluate",
        name,
        "--task",
        task,
        "--data",
        str(tmp_path / "in.jsonl"),
        "--output",
        str(tmp_path / "receipt.json"),
    )
    assert NAMES[task] in found["scores"]
    assert found["samples"] == len(TEXTS)
    ((key, kept),) = json.loads((tmp_path / "receipt.json").read_text()).items()
    assert key.startswith(str(tmp_path / "in.jsonl"))
    assert kept["scores"] == found["scores"]


def test_classes_may_come_by_number_and_bytes_are_the_texts(
    models: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ON["classify"]))
    (tmp_path / "b.jsonl").write_text(
        "".join(json.dumps(row | {"label": i % 2}) + "\n" for i, row in enumerate(ON["classify"]))
    )
    a, b = (
        said(
            capsys,
            "evaluate",
            models["classify"],
            "--task",
            "classify",
            "--data",
            str(tmp_path / f"{n}.jsonl"),
        )
        for n in "ab"
    )
    assert a["scores"] == b["scores"]
    (tmp_path / "c.txt").write_text("\n\n".join(TEXTS))
    found = said(
        capsys,
        "evaluate",
        models["go on"],
        "--task",
        "perplexity",
        "--data",
        str(tmp_path / "c.txt"),
    )["scores"]
    nats = found["loss"] * found["tokens"]
    assert found["bits per byte"] == pytest.approx(
        nats / np.log(2) / sum(len(t.encode()) for t in TEXTS)
    )


def test_questions_of_squad_need_no_answer_in_the_context(
    models: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = json.loads(json.dumps(SQUAD))
    for question in data["data"][0]["paragraphs"][0]["qas"]:
        question |= {"answers": [{"text": "elsewhere", "answer_start": 0}], "is_impossible": False}
    (tmp_path / "in.json").write_text(json.dumps(data))
    rows = said(capsys, "answer", models["answer"], "--input", str(tmp_path / "in.json"))
    assert [row["id"] for row in rows] == ["a", "b"]
    del data["data"][0]["paragraphs"][0]["qas"][0]["answers"]
    (tmp_path / "in.json").write_text(json.dumps(data))
    assert said(capsys, "answer", models["answer"], "--input", str(tmp_path / "in.json")) == rows


def test_answers_are_scored_against_all_of_the_file(
    models: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (answer,) = said(
        capsys, "answer", models["answer"], "--question", "what runs ?", "--context", TEXTS[1]
    )
    data = json.loads(json.dumps(SQUAD))
    data["data"][0]["paragraphs"][0]["qas"][0]["answers"].append(
        {"text": answer["prediction"], "answer_start": answer["start"]}
    )
    (tmp_path / "in.json").write_text(json.dumps(data))
    words = (
        "--task",
        "answer",
        "--data",
        str(tmp_path / "in.json"),
        "--no-answer-threshold",
        "1e9",
    )
    found = said(capsys, "evaluate", models["answer"], *words)["scores"]
    assert found["has_answer_exact_match"] == 100.0  # the second of its answers
    assert found["no_answer_exact_match"] == 0.0


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two steps that translates."""
    folder = tmp_path_factory.mktemp("runs")
    tokenizer().save(folder / "tokenizer.json")
    for name in ("a", "b"):
        (folder / f"text.{name}").write_text(
            "\n".join(TEXTS if name == "a" else reversed(TEXTS)) + "\n"
        )
    source = R.Source(paths=(str(folder / "text.a"), str(folder / "text.b")), format="parallel")
    model = weft.with_dropout(
        weft.transformer(
            "base", vocab_size=tokenizer().size, width=32, depth=1, heads=4, hidden=64
        ),
        0.0,
    )
    recipe = R.Recipe(
        name="small",
        model=model,
        task=R.Translation(),
        batch=R.FixedBatch(size=4, length=32),
        steps=2,
        optimiser=R.Adam(lr=1e-3),
        data=R.Data(
            rows=R.SourceTargetPairs(),
            train=source,
            valid=source,
            tokenizer=R.TokenizerFile(path=str(folder / "tokenizer.json")),
            prepared_folder=str(folder / "prepared"),
        ),
    )
    for _ in train(recipe, folder / "run"):
        pass
    return folder


def test_a_run_is_scored_on_its_own_data_or_on_files_and_keeps_a_receipt_of_each(
    trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("sacrebleu", reason="the extra eval: pip install '.[eval]'")
    run = str(trained / "run")
    own = said(capsys, "evaluate", run, "--num-beams", "1")
    assert {"BLEU", "BLEU signature", "chrF", "BLEU (lower-cased, Moses-tokenised)"} <= own[
        "scores"
    ].keys()
    files = [str(trained / "text.a"), str(trained / "text.b")]
    (trained / "both.tsv").write_text(
        "".join(f"{a}\t{b}\n" for a, b in zip(TEXTS, reversed(TEXTS), strict=True))
    )
    assert (
        said(capsys, "evaluate", run, "--num-beams", "1", "--data", *files)["scores"]
        == own["scores"]
    )
    assert (
        said(capsys, "evaluate", run, "--num-beams", "1", "--data", str(trained / "both.tsv"))[
            "scores"
        ]
        == own["scores"]
    )
    held = json.loads((trained / "run" / "evaluation.json").read_text())
    names = ["valid", " ".join(files), str(trained / "both.tsv")]
    assert [key.rpartition(" (")[0] for key in held] == names
    valid, by_files, _ = held.values()
    assert {"command", "commit", "seed", "seconds", "model", "data", "samples", "scores"} <= (
        valid.keys()
    )
    assert valid["model"] == by_files["model"]
    (trained / "scores.new").write_text("keep me")
    said(capsys, "evaluate", run, "--num-beams", "1", "--output", str(trained / "scores.json"))
    assert (trained / "scores.new").read_text() == "keep me"


def test_a_receipt_replaces_only_one_of_the_same_model_data_and_options(
    models: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They were keyed by the name of the data alone: one file kept the scores of the last call."""
    text = tmp_path / "text.txt"
    out = str(tmp_path / "out.json")
    text.write_text(" ".join(TEXTS) + "\n")
    model = models["go on"]
    other = weft.load(model)
    with torch.no_grad():
        next(other.parameters()).mul_(1.5)
    weft.save(other, tmp_path / "other")
    tokenizer().save(tmp_path / "other" / "tokenizer.json")
    calls: list[tuple[str, list[str]]] = [
        (model, []),
        (model, ["--max-length", "8"]),
        (model, ["--max-length", "8", "--stride", "2"]),
        (model, ["--precision", "bf16"]),
        (str(tmp_path / "other"), []),
    ]
    written = []
    for model, more in calls:
        words = ["evaluate", model, "--task", "perplexity", "--data", str(text), "-o", out, *more]
        written.append(said(capsys, *words))
    assert [*json.loads(Path(out).read_text()).values()] == written
    assert len({one["scores"]["perplexity"] for one in written}) == len(calls)
    again = said(capsys, *words, "--batch-size", "1")
    text.write_text(" ".join(TEXTS[:2]) + "\n")
    fewer = said(capsys, *words)
    kept = [*json.loads(Path(out).read_text()).values()]
    assert kept == [*written[:-1], again, fewer]


def test_an_evaluation_says_how_far_the_states_of_different_tokens_differ(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A collapsed model, whose last norm gives every token nearly one vector, is visible beside one
    that is not.
    """
    tokenizer().save(tmp_path / "tokenizer.json")
    (tmp_path / "data.csv").write_text(
        "text,label\n"
        + "".join(f'"{text}",{"good" if i % 2 else "bad"}\n' for i, text in enumerate(TEXTS))
    )
    model = ready(HEADS["classify"]).model
    found = {}
    for name in ("sound", "collapsed"):
        if name == "collapsed":
            norm = model.encoder.blocks[-1].feedforward.after
            norm.weight.data.mul_(0.01)
            norm.bias.data.fill_(1.0)
        save(model, tmp_path / name, to="weft")
        tokenizer().save(tmp_path / name / "tokenizer.json")
        options = ["--task", "classify", "--data", str(tmp_path / "data.csv")]
        found[name] = said(capsys, "evaluate", str(tmp_path / name), *options)["states"]
        assert main(["evaluate", str(tmp_path / name), *options]) == 0
        assert f"{found[name]['effective_rank']:.1f} of 32" in capsys.readouterr().out
    tokens = sum(len(tokenizer().encode(text)) for text in TEXTS)
    assert found["sound"]["vectors"] == found["collapsed"]["vectors"] >= tokens
    assert found["sound"]["common_share"] < 0.5
    assert found["collapsed"]["common_share"] > 0.99
    assert 1 < found["sound"]["effective_rank"] <= 32


def test_the_scores_of_a_diverged_model_are_printed_and_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data.csv"
    output = tmp_path / "receipt.json"
    data.write_text("text,label\n" + "".join(f'"{text}",good\n' for text in TEXTS))
    model = ready(HEADS["classify"]).model
    model.encoder.blocks[-1].feedforward.after.weight.data.fill_(float("nan"))
    save(model, tmp_path / "diverged", to="weft")
    tokenizer().save(tmp_path / "diverged" / "tokenizer.json")
    words = ["--task", "classify", "--data", str(data), "--output", str(output), "--json"]
    assert main(["evaluate", str(tmp_path / "diverged"), *words]) == 0
    shown = capsys.readouterr()
    assert "states hold NaN or infinity" in shown.err
    written = json.loads(shown.out)
    assert "accuracy" in written["scores"]
    assert "states" not in written
    assert [*json.loads(output.read_text()).values()] == [written]


# Which column is which


@pytest.mark.parametrize(
    ("task", "fields", "row"),
    [
        ("classify", {"idx": 1, "sentence": "x", "label": 1}, R.LabelledTexts(text="sentence")),
        (
            "classify",
            {"Quality": "1", "#1 ID": "1", "#1 String": "a b", "#2 String": "c d"},
            R.LabelledTexts(text="#1 String", second_text="#2 String", label="Quality"),
        ),
        (
            "regress",
            {"sentence1": "a", "sentence2": "b", "score": "1.5"},
            R.LabelledTexts(
                text="sentence1", second_text="sentence2", label="score", numeric_label=True
            ),
        ),
        (
            "classify",
            {"review body": "a long text", "label": "x"},
            R.LabelledTexts(text="review body"),
        ),
        (
            "tag",
            {"tokens": ["a"], "ner_tags": ["O"]},
            R.TaggedWords(words="tokens", tags="ner_tags"),
        ),
        ("translate", {"en": "a", "de": "b"}, R.SourceTargetPairs(source="en", target="de")),
        (
            "choose",
            {"ctx": "a", "endings": ["b", "c"], "label": 0},
            R.ChoiceQuestions(context="ctx", endings=("endings",)),
        ),
    ],
)
def test_columns_are_told_from_their_names(
    task: str, fields: dict[str, Any], row: R.RowSchema
) -> None:
    assert R.task_named(task).infer_rows([fields], name=task) == row


def test_a_column_that_cannot_be_told_is_asked_for() -> None:
    with pytest.raises(
        ValueError, match="no column is recognised as the label; available: 'a', 'b'"
    ):
        R.Classification.infer_rows([{"a": "x", "b": "y"}], name="classify")


@pytest.mark.parametrize("verb", ["classify", "embed", "fill", "tag"])
@pytest.mark.parametrize("name", ["out.xyz", "out.jsonl.bak"])
def test_an_unknown_ending_is_refused_before_the_work_with_the_known_ones(
    models: dict[str, str], verb: str, name: str, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    assert main([verb, models[verb], "a [MASK]", "--output", str(tmp_path / name)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    for word in (name, ".jsonl", ".csv", ".parquet"):
        assert word in line
    assert (".npy" in line) == (verb == "embed")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["out", "out.ndjson"])
def test_a_file_without_an_ending_holds_json_lines(
    models: dict[str, str], name: str, tmp_path: Path
) -> None:
    assert main(["classify", models["classify"], "a", "b", "--output", str(tmp_path / name)]) == 0
    rows = [json.loads(line) for line in (tmp_path / name).read_text().splitlines()]
    assert [row["text"] for row in rows] == ["a", "b"]


@pytest.mark.parametrize("verb", ["classify", "tag"])
def test_the_suggested_command_names_a_checkpoint_that_can_be_tuned(
    models: dict[str, str], verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The tokenizer of demo has no token to end a row with, which tuning needs."""
    assert main([verb, "demo", "hi"]) == 2
    words = capsys.readouterr().err.split()
    assert words[words.index("tune") + 1] not in ("demo", "--task")
    assert main([verb, models["fill"], "hi"]) == 2
    words = capsys.readouterr().err.split()
    assert words[words.index("tune") + 1] == models["fill"]
