"""`weft tune`: from a file to a model, continuation, and one-line errors."""

import json
import shutil
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import weft
from weft import cli
from weft import recipe as R
from weft import spec as S
from weft.commands.tune import plan_tuning
from weft.commands.tune_options import TuneOptions
from weft.data.preparing.prepare import prepare
from weft.data.reading.rows import load_source
from weft.data.shards.store import open_store
from weft.inference.open_model import open_model
from weft.interop.loading import load
from weft.interop.saving import save
from weft.nn.model import build
from weft.studies import results, search
from weft.training.optimisers.optimiser import Optimiser

from .tuned_data import POOLED, bert, checkpoint, sentences, write_examples


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with its tokenizer."""
    folder: Path = tmp_path_factory.mktemp("start")
    write_examples(folder / "text.jsonl", 4)
    prepare(
        R.Data(
            rows=R.LabelledTexts(),
            train=R.Source(paths=(str(folder / "text.jsonl"),)),
            tokenizer=R.ByteTokenizer(),
        ),
        folder / "prepared",
    )
    made = checkpoint(folder / "model")
    shutil.copy(folder / "prepared" / "tokenizer.json", made / "tokenizer.json")
    return made


def tune(start: Path, data: Path, out: Path, *more: str) -> int:
    return cli.main(
        [
            "tune",
            str(start),
            "--data",
            str(data),
            "--output",
            str(out),
            "--epochs",
            "2",
            "--batch-size",
            "8",
            "--precision",
            "fp32",
            *more,
        ]
    )


def two_rates(start: Path, data: Path, out: Path, epochs: int) -> TuneOptions:
    return TuneOptions(
        checkpoint=str(start),
        data=(str(data),),
        output=str(out),
        learning_rates=(1e-3, 3e-3),
        seeds=1,
        epochs=epochs,
        batch_size=8,
        precision="fp32",
    )


def table(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "tune.json").read_text())
    return found


def test_rates_are_tried_then_seeds_at_the_best_and_the_best_is_kept_and_opens_like_a_run(
    start: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_examples(tmp_path / "train.jsonl", 60)
    out = tmp_path / "run"
    assert (
        tune(
            start, data, out, "--learning-rates", "1e-3", "3e-3", "--seeds", "2", "--metric", "loss"
        )
        == 0
    )
    found = table(out)
    said = capsys.readouterr()
    assert "text in 'text', 2 classes in 'label' (0, 1): classify" in said.err
    assert [(one["lr"], one["seed"]) for one in found["trials"][:2]] == [(1e-3, 0), (3e-3, 0)]
    best = min(found["trials"][:2], key=lambda one: one["loss"])
    assert best["lr"] == 3e-3
    assert (found["trials"][2]["lr"], found["trials"][2]["seed"], len(found["trials"])) == (
        best["lr"],
        1,
        3,
    )
    chosen = min(found["trials"], key=lambda one: one["loss"])
    assert found["best"] == chosen["trial"]
    assert "6 of 60 rows held out" in found["data"]
    assert (found["train_rows"], found["valid_rows"]) == (54, 6)
    own = load(out / chosen["trial"] / "model").state_dict()
    kept = open_model(out)
    assert all(torch.equal(own[name], tensor) for name, tensor in kept.model.state_dict().items())
    assert (kept.labels, kept.require_tokenizer.size) == (("0", "1"), 261)
    assert [path.parent.name for path in out.glob("trial-*/checkpoints")] == [chosen["trial"]]
    assert cli.main(["status", str(out)]) == 0
    assert "finished" in capsys.readouterr().out

    before = {path: path.stat().st_mtime_ns for path in out.glob("trial-*/**/*")}
    assert (
        tune(
            start, data, out, "--learning-rates", "1e-3", "3e-3", "--seeds", "2", "--metric", "loss"
        )
        == 0
    )
    assert {path: path.stat().st_mtime_ns for path in out.glob("trial-*/**/*")} == before
    assert table(out) == found


def test_a_score_stands_beside_the_share_of_the_most_frequent_class(
    start: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "train.csv"
    valid = tmp_path / "valid.csv"
    out = tmp_path / "run"
    rows = [f"{'ab'[i % 2] * 5},{['good', 'bad'][i % 2]}" for i in range(16)]
    data.write_text("\n".join(["text,label", *rows]) + "\n")
    valid.write_text("\n".join(["text,label", *rows[:5], "c,good", "d,good", "e,good"]) + "\n")
    options = ("--valid", str(valid), "--learning-rates", "1e-3", "--seeds", "1", "--epochs", "1")
    assert tune(start, data, out, *options) == 0
    assert table(out)["majority"] == {"class": "good", "share": 6 / 8}
    assert "0.7500" in capsys.readouterr().out
    numbers = tmp_path / "numbers.csv"
    numbers.write_text("text,score\n" + "".join(f"{'a' * i},{i / 7}\n" for i in range(1, 30)))
    assert tune(start, numbers, tmp_path / "number", *options[2:]) == 0
    assert table(tmp_path / "number")["majority"] is None


def test_a_rate_without_a_finite_validation_is_left_out_of_the_search(
    start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "trial" / "log.jsonl"
    log.parent.mkdir()
    log.write_text('{"step": 1, "loss": 2.0, "seconds": 1.0}\n')
    assert results.trial_result(log.parent, "accuracy", 1e-3, 0) is None
    data = write_examples(tmp_path / "train.jsonl", 60)
    lines = []
    measured = results.trial_result

    def options(out: str) -> TuneOptions:
        return two_rates(start, data, tmp_path / out, epochs=1)

    def finite_at_first(folder: Path, metric: str, lr: float, seed: int) -> dict[str, Any] | None:
        return measured(folder, metric, lr, seed) if lr == 1e-3 else None

    monkeypatch.setattr(results, "trial_result", finite_at_first)
    for _ in search.run_trials(plan_tuning(options("one")), lines.append):
        pass
    assert [trial["lr"] for trial in table(tmp_path / "one")["trials"]] == [1e-3]
    assert any("no validation has a finite accuracy; omitted" in line for line in lines)
    assert (tmp_path / "one" / "model").exists()
    monkeypatch.setattr(results, "trial_result", lambda *of_trial: None)
    with pytest.raises(ValueError, match="give lower --learning-rates"):
        list(search.run_trials(plan_tuning(options("none")), print))


def test_an_interrupted_search_resumes_with_the_same_result(start: Path, tmp_path: Path) -> None:
    data = write_examples(tmp_path / "train.jsonl", 60)

    def options(out: str) -> TuneOptions:
        return two_rates(start, data, tmp_path / out, epochs=2)

    for _ in search.run_trials(plan_tuning(options("whole")), print):
        pass
    steps = plan_tuning(options("hurt")).recipe.steps
    for begin in (4, steps + 3):  # in the first try, and in the second
        for i, _ in enumerate(search.run_trials(plan_tuning(options("hurt")), print)):
            if i == begin - (0 if begin == 4 else 5):
                break
        assert not (tmp_path / "hurt" / "model").exists()
    for _ in search.run_trials(plan_tuning(options("hurt")), print):
        pass
    one, two = (table(tmp_path / name) for name in ("whole", "hurt"))
    assert [(t["trial"], t["accuracy"], t["step"]) for t in one["trials"]] == [
        (t["trial"], t["accuracy"], t["step"]) for t in two["trials"]
    ]
    assert (tmp_path / "whole/model/model.safetensors").read_bytes() == (
        tmp_path / "hurt/model/model.safetensors"
    ).read_bytes()


def test_the_seed_decides_what_is_held_out_and_where_each_try_begins(
    start: Path, tmp_path: Path
) -> None:
    data = write_examples(tmp_path / "train.jsonl", 60)
    made = [
        plan_tuning(
            TuneOptions(
                checkpoint=str(start),
                data=(str(data),),
                output=str(tmp_path / str(seed)),
                batch_size=8,
                seed=seed,
            )
        )
        for seed in (0, 5)
    ]
    assert [one.recipe.seed for one in made] == [0, 5]
    assert made[1].trial_recipe(1e-3, made[1].recipe.seed).name == "trial-0.001-5"
    assert made[1].trial_recipe(1e-3, 6).seed == 6
    held = [[item.fields for item in load_source(one.recipe.data.valid)[0]] for one in made]
    assert held[0] != held[1]
    assert len(held[0]) == len(held[1])


def test_dropout_is_a_tenth_where_bert_has_it_whatever_the_checkpoint_was_trained_with(
    start: Path, tmp_path: Path
) -> None:
    model = load(start)
    model.spec = S.with_dropout(model.spec, 0.0)
    shutil.copytree(start, tmp_path / "dry")
    (tmp_path / "dry" / "weft.json").write_text(model.spec.to_json())
    (tmp_path / "dry" / "manifest.json").unlink()
    data = write_examples(tmp_path / "train.jsonl", 30)
    wish = TuneOptions(
        checkpoint=str(tmp_path / "dry"),
        data=(str(data),),
        output=str(tmp_path / "run"),
        batch_size=8,
    )
    assert plan_tuning(wish).recipe.model == bert(S.replace(POOLED, labels=("0", "1")))
    block = plan_tuning(replace(wish, dropout=0.3)).recipe.model.encoder.blocks[0]  # type: ignore[union-attr]
    assert (
        block.attention.inner.dropout,
        block.attention.dropout,
        block.feedforward.inner.dropout,
    ) == (0.3, 0.3, 0.0)


def squad(path: Path) -> Path:
    articles = []
    for i, text in enumerate(sentences(12, 5)):
        word = text.split()[1]
        asked = {
            "id": f"q{i}",
            "question": "which?",
            "answers": [{"text": word, "answer_start": text.index(word)}],
        }
        articles.append({"title": str(i), "paragraphs": [{"context": text, "qas": [asked]}]})
    path.write_text(json.dumps({"data": articles}))
    return path


def tagged(path: Path) -> Path:
    rows = [
        [(word, "B-X" if word == "loom" else "O") for word in text.split()]
        for text in sentences(40, 6)
    ]
    path.write_text("".join("".join(f"{word} {tag}\n" for word, tag in row) + "\n" for row in rows))
    return path


def pairs(path: Path, number: bool) -> Path:
    rows = [
        (a, b, len(a) / 7 if number else ["no", "yes"]["loom" in a])
        for a, b in zip(sentences(40, 7), sentences(40, 8), strict=True)
    ]
    path.write_text("a\tb\tscore\n" + "".join(f"{a}\t{b}\t{c}\n" for a, b, c in rows))
    return path


def endings(path: Path) -> Path:
    rows = [
        {"context": a, "ending0": b, "ending1": a, "label": i % 2}
        for i, (a, b) in enumerate(zip(sentences(30, 1), sentences(30, 2), strict=True))
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize(
    ("task", "make", "more"),
    [
        ("answer", lambda f: squad(f / "squad.json"), ()),
        ("tag", lambda f: tagged(f / "tags.txt"), ("--layer-decay", "0.8")),
        (
            "pair",
            lambda f: pairs(f / "pairs.tsv", False),
            ("--lora-rank", "2", "--metric", "matthews"),
        ),
        ("regress", lambda f: pairs(f / "scores.tsv", True), ("--freeze-body",)),
        ("choose", lambda f: endings(f / "endings.jsonl"), ()),
    ],
)
def test_every_task_is_tuned_scored_by_its_own_measure_and_opens(
    task: str, make: Any, more: tuple[str, ...], start: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    assert tune(start, make(tmp_path), out, "--learning-rates", "3e-3", "--seeds", "1", *more) == 0
    found = table(out)
    metric = {
        "answer": "f1",
        "tag": "f1",
        "pair": "matthews",
        "regress": "pearson",
        "choose": "accuracy",
    }[task]
    assert (found["task"], found["metric"]) == (task, metric)
    assert set(found["trials"][0]["valid"]) >= {metric, "loss"}
    recipe = R.recipe_of_run(out)
    assert (recipe.trainable, recipe.optimiser) == (
        {"pair": R.LoRA(rank=2, alpha=4.0), "regress": R.HeadOnly()}.get(task),
        R.AdamW(lr=3e-3, layer_decay=0.8 if task == "tag" else None),
    )
    assert open_model(out).model.spec.head == recipe.model.head
    if task == "answer":
        assert "1 of 12 articles held out" in found["data"]


def test_a_run_that_is_not_finished_can_be_tuned_too(start: Path, tmp_path: Path) -> None:
    from tests import whole_runs

    recipe = R.Recipe(
        name="before",
        model=bert(),
        task=R.Classification(),
        batch=R.FixedBatch(size=8, length=48),
        steps=9,
        optimiser=R.AdamW(lr=1e-3),
        checkpoints=R.Checkpoints(every_steps=2),
        data=R.Data(
            rows=R.LabelledTexts(),
            train=R.Source(paths=(str(write_examples(tmp_path / "a.jsonl", 30)),)),
            tokenizer=R.TokenizerFile(path=str(start / "tokenizer.json")),
            prepared_folder=str(tmp_path / "prepared"),
        ),
    )
    for event in whole_runs.train(recipe, tmp_path / "before"):
        if event.step == 5:
            break
    data = write_examples(tmp_path / "train.jsonl", 30)
    out = tmp_path / "run"
    assert tune(tmp_path / "before", data, out, "--learning-rates", "1e-3", "--seeds", "1") == 0
    assert table(out)["checkpoint"] == str((out / "start").resolve())


@pytest.mark.parametrize(
    ("more", "line"),
    [
        (("--task", "tag"), "tagging needs a list of words and a list of tags per row"),
        (("--metric", "pearson"), "metric = 'pearson': Classification supports loss"),
        (("--freeze-body", "--lora-rank", "2"), "give one of them"),
        (("--epochs", "0"), "--epochs 0: give a number above 0"),
        (("--epochs", "nan"), "--epochs nan: give a number above 0"),
        (("--epochs", "inf"), "--epochs inf: give a number"),
        (("--learning-rates", "-1"), "--learning-rates -1: give a number above 0, such as 5e-5"),
        (("--valid", "nowhere.tsv"), "--valid nowhere.tsv: nowhere.tsv does not exist"),
        (("--layer-decay", "2"), "AdamW.layer_decay = 2.0"),
        (("--taks", "tag"), "did you mean '--task'"),
    ],
)
def test_a_mistake_is_one_line(
    more: tuple[str, ...],
    line: str,
    start: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert tune(start, write_examples(tmp_path / "train.jsonl", 12), tmp_path / "run", *more) == 2
    said = [text for text in capsys.readouterr().err.splitlines() if "rows (jsonl)" not in text]
    assert len(said) == 1
    assert line in said[0]


def test_a_checkpoint_without_a_tokenizer_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        tune(
            checkpoint(tmp_path / "bare"),
            write_examples(tmp_path / "train.jsonl", 12),
            tmp_path / "run",
        )
        == 2
    )
    assert "bare has no tokenizer.json" in capsys.readouterr().err


def test_a_run_of_another_kind_is_not_overwritten_and_a_rate_given_twice_is_tried_once(
    start: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_examples(tmp_path / "train.jsonl", 30)
    out = tmp_path / "run"
    out.mkdir()
    (out / "recipe.json").write_text("mine")
    assert tune(start, data, out, "--learning-rates", "1e-3", "1e-3", "--seeds", "1") == 2
    assert "is another run" in capsys.readouterr().err
    assert (out / "recipe.json").read_text() == "mine"
    (out / "recipe.json").unlink()
    assert tune(start, data, out, "--learning-rates", "1e-3", "1e-3", "--seeds", "1") == 0
    assert len(table(out)["trials"]) == 1


def test_other_settings_in_the_same_folder_are_refused(
    start: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_examples(tmp_path / "train.jsonl", 30)
    out = tmp_path / "run"
    assert tune(start, data, out, "--learning-rates", "1e-3", "--seeds", "1") == 0
    assert (
        tune(start, data, out, "--learning-rates", "1e-3", "--seeds", "1", "--layer-decay", "0.9")
        == 2
    )
    assert "was started with another recipe" in capsys.readouterr().err


def test_a_bad_rate_and_a_finished_try_of_other_settings_are_found_before_anything_is_trained(
    start: Path, tmp_path: Path
) -> None:
    data = write_examples(tmp_path / "train.jsonl", 30)
    out = tmp_path / "run"
    wish = TuneOptions(
        checkpoint=str(start),
        data=(str(data),),
        output=str(out),
        learning_rates=(1e-3, 3e-3),
        seeds=1,
        epochs=1,
        batch_size=8,
        precision="fp32",
    )
    with pytest.raises(ValueError, match=r"learning_rates = -1"):
        next(search.run_trials(plan_tuning(replace(wish, learning_rates=(1e-3, -1.0))), print))
    assert not list(out.glob("trial-*"))
    for _ in search.run_trials(plan_tuning(wish), print):
        pass
    loser = next(path for path in out.glob("trial-*") if not (path / "checkpoints").exists())
    before = {path: path.stat().st_mtime_ns for path in out.glob("trial-*/**/*")}
    with pytest.raises(
        ValueError,
        match=r"was started with another recipe: steps was 4; undo the change of --epochs",
    ):
        next(
            search.run_trials(
                plan_tuning(
                    replace(wish, epochs=5, learning_rates=(float(loser.name.split("-")[1]),))
                ),
                print,
            )
        )
    assert {path: path.stat().st_mtime_ns for path in out.glob("trial-*/**/*")} == before


def test_a_table_is_split_without_writing_its_rows(start: Path, tmp_path: Path) -> None:
    rows = [
        {"text": text, "label": i % 2, "day": date(2020, 1, 1)}
        for i, text in enumerate(sentences(20, 0))
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    found = plan_tuning(
        TuneOptions(
            checkpoint=str(start),
            data=(str(tmp_path / "a.parquet"),),
            output=str(tmp_path / "run"),
            precision="fp32",
        )
    )
    assert (found.train_rows, found.valid_rows) == (18, 2)
    held_out = load_source(found.recipe.data.valid, ("text", "label"))[0]  # type: ignore[arg-type]
    stored = open_store(tmp_path / "run" / "prepared", "valid")
    assert [item.fields["label"] for item in held_out] == list(map(int, stored.column("label")))
    assert not (tmp_path / "run" / "data").exists()


def test_a_table_without_a_header_is_read_whole_by_the_verbs_that_ask(
    start: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [f"{s} in my own view,{('no', 'yes')['loom' in s]}\n" for s in sentences(40, 0)]
    (tmp_path / "train.csv").write_text("".join(rows))
    (tmp_path / "some.csv").write_text("".join(rows[:5]))
    assert (
        tune(
            start,
            tmp_path / "train.csv",
            tmp_path / "run",
            "--learning-rates",
            "1e-3",
            "--seeds",
            "1",
        )
        == 0
    )
    capsys.readouterr()
    assert (
        cli.main(
            ["classify", str(tmp_path / "run"), "--input", str(tmp_path / "some.csv"), "--json"]
        )
        == 0
    )
    assert [row["0"] for row in json.loads(capsys.readouterr().out)] == [
        row.split(",")[0] for row in rows[:5]
    ]
    assert (
        cli.main(
            ["evaluate", str(tmp_path / "run"), "--data", str(tmp_path / "some.csv"), "--json"]
        )
        == 0
    )
    assert json.loads(capsys.readouterr().out)["samples"] == 5
    for words in (
        ["show", str(tmp_path / "run")],
        ["export", str(tmp_path / "run"), str(tmp_path / "hf"), "--to", "hf"],
    ):
        assert cli.main(words) == 0


def test_names_that_were_given_to_a_table_hold_for_the_verbs_that_ask(
    start: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [f"{('no', 'yes')['loom' in s]},{s} in my own view\n" for s in sentences(40, 0)]
    for name, own in (("train", rows), ("dev", rows[:9]), ("some", rows[:5])):
        (tmp_path / f"{name}.csv").write_text("".join(own))
    assert (
        tune(
            start,
            tmp_path / "train.csv",
            tmp_path / "run",
            "--learning-rates",
            "1e-3",
            "--seeds",
            "1",
            "--valid",
            str(tmp_path / "dev.csv"),
            "--column-names",
            "kind",
            "said",
        )
        == 0
    )
    capsys.readouterr()
    assert (
        cli.main(
            ["classify", str(tmp_path / "run"), "--input", str(tmp_path / "some.csv"), "--json"]
        )
        == 0
    )
    assert [row["said"] for row in json.loads(capsys.readouterr().out)] == [
        row.strip().split(",")[1] for row in rows[:5]
    ]


def test_a_run_of_another_kind_is_refused_before_anything_is_written_to_it(
    start: Path, tmp_path: Path
) -> None:
    data = write_examples(tmp_path / "train.jsonl", 60)
    out = tmp_path / "run"
    out.mkdir()
    (out / "recipe.json").write_text("{}")
    assert tune(start, data, out) == 2
    assert [file.name for file in out.iterdir()] == ["recipe.json"]


def test_the_best_value_is_reported_and_the_log_is_read_at_validations_only(
    start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = plan_tuning(
        TuneOptions(
            checkpoint=str(start),
            data=(str(write_examples(tmp_path / "train.jsonl", 60)),),
            output=str(tmp_path / "run"),
            learning_rates=(1e-3,),
            seeds=1,
            epochs=2,
            batch_size=8,
            precision="fp32",
        )
    )
    look = made.recipe.eval_every or 0
    read = search.best_so_far
    calls = list[Any]()
    monkeypatch.setattr(
        search, "best_so_far", lambda *known: (calls.append(known), read(*known))[1]
    )
    going = search.run_trials(made, print)
    told = [next(going).best for _ in range(look + 1)]
    assert [best is None for best in told] == [True] * (look - 1) + [False] * 2
    assert len(calls) == 2
    going.close()
    again = search.run_trials(made, print)
    assert next(again).best is not None, "of a trial that continues"
    again.close()


def test_rows_that_are_set_aside_are_said_and_more_than_a_few_stop_it(
    start: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = write_examples(tmp_path / "train.jsonl", 75).read_text().splitlines()
    short = ("--learning-rates", "1e-3", "--seeds", "1", "--epochs", "0.1")
    for broken, more, code, told in (
        (1, (), 0, "1 of 75 rows set aside"),
        (15, (), 2, "15 of 75 rows cannot be read"),
        (15, ("--max-bad-row-fraction", "0.2"), 0, "15 of 75 rows set aside"),
    ):
        cut = [line[:-4] if i % 5 == 0 and i < 5 * broken else line for i, line in enumerate(lines)]
        (tmp_path / "a.jsonl").write_text("\n".join(cut) + "\n")
        assert (
            tune(start, tmp_path / "a.jsonl", tmp_path / f"run{broken}{code}", *short, *more)
            == code
        )
        error = capsys.readouterr().err
        assert told in error
        assert code == 0 or error.count("\n") == 1


@pytest.mark.parametrize(
    ("more", "expected", "rates"),
    [
        ({}, R.Adafactor(lr=3e-3), (1e-2, 3e-3, 1e-3)),
        ({"layer_decay": 0.8}, R.AdamW(lr=4e-5, layer_decay=0.8), (5e-5, 4e-5, 3e-5, 2e-5)),
        ({"trainable": R.LoRA(rank=2)}, R.AdamW(lr=4e-4), (5e-4, 4e-4, 3e-4, 2e-4)),
        ({"learning_rates": (3e-2,)}, R.Adafactor(lr=3e-3), (3e-2,)),
    ],
)
def test_t5_is_tuned_by_steps_relative_to_its_weights(
    more: dict[str, Any],
    expected: R.AdamW | R.Adafactor,
    rates: tuple[float, ...],
    start: Path,
    tmp_path: Path,
) -> None:
    spec = weft.t5(depth=1, width=16, heads=2, hidden=32, vocab_size=261, head_dim=8)
    checkpoint = save(build(spec), tmp_path / "t5", to="weft")
    shutil.copy(start / "tokenizer.json", checkpoint / "tokenizer.json")
    data = write_examples(tmp_path / "train.jsonl", 20)
    found = plan_tuning(
        TuneOptions(str(checkpoint), (str(data),), output=str(tmp_path / "run"), **more)
    )
    assert found.recipe.optimiser == expected
    assert found.learning_rates == pytest.approx(rates)
    assert found.trial_recipe(rates[-1], 0).optimiser.lr == rates[-1]


def test_every_weight_of_a_t5_is_moved_by_a_like_share_of_its_size() -> None:
    """AdamW's first step at 1e-3 moves the token table by a thousandth and the queries by a tenth
    of their size.
    """
    spec = weft.t5(depth=1, width=64, heads=1, hidden=128, vocab_size=64, head_dim=64, dropout=0.0)

    def shares(optimiser: R.AdamW | R.Adafactor) -> list[float]:
        model = build(spec)
        before = {n: p.detach().clone() for n, p in model.named_parameters() if p.dim() == 2}
        model(torch.arange(64)[None], torch.arange(64)[None]).square().sum().backward()
        Optimiser(optimiser, model).step(1.0)
        return [
            float((model.get_parameter(n).detach() - p).norm() / p.norm())
            for n, p in before.items()
        ]

    even = shares(R.Adafactor(lr=1e-2))
    uneven = shares(R.AdamW(lr=1e-3))
    assert max(even) < 1.5 * min(even)
    assert max(uneven) > 30 * min(uneven)


def test_other_rows_and_a_task_that_cannot_be_tuned_are_one_line_with_a_fix(
    start: Path, tmp_path: Path
) -> None:
    data = write_examples(tmp_path / "train.jsonl", 30)
    out = tmp_path / "run"
    wish = TuneOptions(
        checkpoint=str(start), data=(str(data),), output=str(out), epochs=1, batch_size=8
    )
    plan_tuning(wish)
    with pytest.raises(ValueError, match="undo the change of the data or --seed"):
        plan_tuning(replace(wish, seed=1))
    with pytest.raises(ValueError, match=r"translate starts from random weights.*text2text"):
        plan_tuning(replace(wish, task="translate", output=str(tmp_path / "other")))
    with pytest.raises(ValueError, match="seed = -1"):
        replace(wish, seed=-1)
