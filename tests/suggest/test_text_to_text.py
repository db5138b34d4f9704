"""`weft tune` on T5 and BART: text-to-text training, evaluation, inference and resumption."""

import json
import shutil
from pathlib import Path
from typing import Any

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
from weft.generate.text_generator import TextGenerator
from weft.inference.open_model import open_model
from weft.interop.saving import save
from weft.nn.model import build
from weft.studies import search
from weft.tasks.task import predict
from weft.tasks.text_to_text import class_probabilities

from ..commands.tuned_data import bert, sentences, write_examples

SHAPE: dict[str, Any] = {"depth": 2, "width": 16, "heads": 2, "hidden": 32, "vocab_size": 261}
SPECS = {
    "t5": lambda: weft.t5(**SHAPE, head_dim=8),
    "bart": lambda: weft.bart(**SHAPE, positions=96),
    "translator": lambda: weft.transformer(**SHAPE),
    "bert": lambda: bert(S.NoHead()),
}


@pytest.fixture(scope="module")
def starts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Checkpoints with their tokenizer."""
    folder: Path = tmp_path_factory.mktemp("starts")
    write_examples(folder / "text.jsonl", 4)
    prepare(
        R.Data(
            rows=R.LabelledTexts(),
            train=R.Source(paths=(str(folder / "text.jsonl"),)),
            tokenizer=R.ByteTokenizer(),
        ),
        folder / "prepared",
    )
    for name, spec in SPECS.items():
        save(build(spec(), seed=7), folder / name, to="weft")
        shutil.copy(folder / "prepared" / "tokenizer.json", folder / name / "tokenizer.json")
    return {name: folder / name for name in SPECS}


def wish(start: Path, out: Path, *data: Path, **more: Any) -> TuneOptions:
    given: dict[str, Any] = {
        "learning_rates": (3e-3,),
        "seeds": 1,
        "epochs": 2,
        "batch_size": 8,
        "precision": "fp32",
        **more,
    }
    return TuneOptions(checkpoint=str(start), data=tuple(map(str, data)), output=str(out), **given)


def pairs(path: Path, count: int = 40) -> Path:
    rows = [
        {"source": text, "target": " ".join(reversed(text.split()))} for text in sentences(count, 3)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


# What is understood


def test_classes_are_decoded_as_their_words_and_an_explicit_task_reads_the_encoder_alone(
    starts: dict[str, Path], tmp_path: Path
) -> None:
    data = write_examples(tmp_path / "a.jsonl", 40)
    lines = list[str]()
    made = plan_tuning(
        wish(
            starts["t5"], tmp_path / "run", data, source_prefix="loom: ", label_texts=("no", "yes")
        ),
        lines.append,
    )
    assert made.task == "text2text"
    assert made.metric == "exact_match"
    assert made.recipe.task == R.TextToText(input_format="t5")
    assert made.recipe.data.rows == R.TemplatedPairs(
        template="loom: {text}", target="label", labels=("0", "1"), label_texts=("no", "yes")
    )
    assert "source 'loom: {text}', 2 labels in 'label' (no, yes): text2text" in lines[0]
    assert made.recipe.model == S.replace(
        SPECS["t5"](), special_tokens=S.SpecialTokens(decoder_start=0)
    )
    plain = plan_tuning(wish(starts["t5"], tmp_path / "other", data, task="classify"))
    assert plain.recipe.task == R.Classification()
    assert plain.recipe.model.decoder is None


def test_barts_marks_and_start_are_its_own_and_a_translators_start_stays(
    starts: dict[str, Path], tmp_path: Path
) -> None:
    data = pairs(tmp_path / "pairs.jsonl")
    made = plan_tuning(wish(starts["bart"], tmp_path / "bart", data))
    assert (made.recipe.task, made.recipe.model.special_tokens.decoder_start, made.metric) == (
        R.TextToText(input_format="bart"),
        3,
        "loss",
    )
    made = plan_tuning(wish(starts["translator"], tmp_path / "translator", data))
    assert (made.recipe.task, made.recipe.model.special_tokens.decoder_start) == (
        R.TextToText(input_format="t5"),
        0,
    )


@pytest.mark.parametrize("form", ["named", "two texts", "columns", "aligned"])
def test_two_columns_of_text_or_two_aligned_files_are_source_and_target(
    form: str, starts: dict[str, Path], tmp_path: Path
) -> None:
    rows = [(text, " ".join(reversed(text.split()))) for text in sentences(30, 3)]
    names = {"named": ("src", "tgt"), "two texts": ("from", "to"), "columns": ("to", "from")}.get(
        form, ("source", "target")
    )
    if form == "aligned":
        for i, ending in enumerate(("en", "de")):
            (tmp_path / f"train.{ending}").write_text("".join(row[i] + "\n" for row in rows))
        made = plan_tuning(
            wish(starts["t5"], tmp_path / "run", tmp_path / "train.en", tmp_path / "train.de")
        )
    else:
        (tmp_path / "a.tsv").write_text(
            "\t".join(names) + "\n" + "".join("\t".join(row) + "\n" for row in rows)
        )
        more = {"columns": names} if form == "columns" else {}
        made = plan_tuning(wish(starts["t5"], tmp_path / "run", tmp_path / "a.tsv", **more))
    assert made.recipe.data.rows == R.TemplatedPairs(template=f"{{{names[0]}}}", target=names[1])
    assert (made.train_rows, made.valid_rows) == (27, 3)


@pytest.mark.parametrize(
    ("model", "said", "more"),
    [
        ("bert", "--task text2text needs an encoder-decoder", {"task": "text2text"}),
        ("bert", "need --task text2text", {"source_prefix": "a: "}),
        ("t5", "unknown column 'nothing'", {"source_prefix": "{nothing}: "}),
        ("t5", "give one per class, 2", {"label_texts": ("a",)}),
        (
            "t5",
            "text2text keeps the model's own|text-to-text keeps the model's own",
            {"layer_mix": S.LayerMix(layers=(-1,))},
        ),
    ],
)
def test_invalid_requests_are_one_line_errors(
    model: str, said: str, more: dict[str, Any], starts: dict[str, Path], tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=said):
        plan_tuning(
            wish(starts[model], tmp_path / "run", write_examples(tmp_path / "a.jsonl", 30), **more)
        )


# A run of it


@pytest.fixture(scope="module")
def run(starts: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("run")
    data = write_examples(folder / "train.jsonl", 60)
    assert (
        cli.main(
            [
                "tune",
                str(starts["t5"]),
                "--data",
                str(data),
                "--output",
                str(folder / "run"),
                "--learning-rates",
                "5e-2",
                "--seeds",
                "1",
                "--epochs",
                "12",
                "--batch-size",
                "8",
                "--precision",
                "fp32",
                "--source-prefix",
                "loom: ",
                "--label-texts",
                "no",
                "yes",
            ]
        )
        == 0
    )
    return folder / "run"


def test_a_tuned_run_is_scored_classified_and_generates(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = write_examples(run.parent / "other.jsonl", 20, seed=4)
    assert cli.main(["evaluate", str(run), "--data", str(other), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["scores"]
    assert found["exact_match"] <= found["accuracy"] <= 1
    rows = [json.loads(line) for line in other.read_text().splitlines()]
    assert cli.main(["classify", str(run), "--input", str(other), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (
        sum(row["prediction"] == str(true["label"]) for row, true in zip(said, rows, strict=True))
        / 20
        == found["accuracy"]
    )
    assert all(sum(row["probabilities"].values()) == pytest.approx(1) for row in said)
    assert cli.main(["generate", str(run), rows[0]["text"], "--max-new-tokens", "5"]) == 0
    assert capsys.readouterr().out.strip() in ("no", "yes")
    assert cli.main(["translate", str(run), rows[0]["text"]]) == 0


def test_exact_match_without_generating_is_that_of_greedy_generation(run: Path) -> None:
    """Also for a model that is wrong at times: its weights are shaken."""
    opened = open_model(run)
    with torch.no_grad():
        for p in opened.model.parameters():
            p.add_(0.1 * p.std() * torch.randn(p.shape, generator=torch.Generator().manual_seed(0)))
    from weft.data.shards.store import open_store

    store = open_store(run / "prepared", "train")  # type: ignore[union-attr]
    row = opened.recipe.data.rows  # type: ignore[union-attr]
    assert isinstance(row, R.TemplatedPairs)
    found = [
        all(hit for _, hit in own) for own in predict(opened, R.TextToText(), store, length=64)
    ]
    source = opened.recipe.data.train  # type: ignore[union-attr]
    texts = [item.fields for item in load_source(source)[0]]  # type: ignore[arg-type]
    written = [
        one[0].text
        for one in TextGenerator(opened).generate(
            [fields["text"] for fields in texts], max_new_tokens=8
        )
    ]
    assert [
        text == row.target_text(fields) for text, fields in zip(written, texts, strict=True)
    ] == found
    assert 0 < sum(found) < len(found)


def test_the_likelihood_of_a_class_is_that_of_its_words_read_alone(run: Path) -> None:
    opened = open_model(run)
    row = opened.recipe.data.rows  # type: ignore[union-attr]
    writer = TextGenerator(opened)  # type: ignore[union-attr]
    text = "loom: the loom"  # type: ignore[union-attr]
    assert isinstance(row, R.TemplatedPairs)
    scores = []
    for word in row.targets:
        labels = torch.tensor([*opened.require_tokenizer.encode(word).tolist(), 3])
        logits = opened.model(
            torch.tensor([writer.encode_with_frame(text)]),
            torch.tensor([[0, *labels[:-1].tolist()]]),
        )
        assert isinstance(logits, torch.Tensor)
        scores.append(logits[0].log_softmax(-1).gather(1, labels[:, None]).sum())
    both = class_probabilities(opened, writer, row, [text, "loom: another text that is longer"])
    assert both[0] == pytest.approx(torch.stack(scores).softmax(0).tolist(), abs=1e-5)


def test_texts_are_scored_by_exact_match_and_bleu(
    starts: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("sacrebleu")
    out = tmp_path / "run"
    assert (
        cli.main(
            [
                "tune",
                str(starts["bart"]),
                "--data",
                str(pairs(tmp_path / "pairs.jsonl")),
                "--output",
                str(out),
                "--learning-rates",
                "1e-3",
                "--seeds",
                "1",
                "--epochs",
                "1",
                "--batch-size",
                "8",
                "--precision",
                "fp32",
            ]
        )
        == 0
    )
    capsys.readouterr()
    assert cli.main(["evaluate", str(out), "--json"]) == 0
    assert {"exact_match", "BLEU", "chrF"} <= set(json.loads(capsys.readouterr().out)["scores"])


def test_an_interrupted_search_resumes_with_the_same_result(
    starts: dict[str, Path], tmp_path: Path
) -> None:
    data = write_examples(tmp_path / "train.jsonl", 40)
    for _ in search.run_trials(plan_tuning(wish(starts["bart"], tmp_path / "whole", data)), print):
        pass
    for i, _ in enumerate(
        search.run_trials(plan_tuning(wish(starts["bart"], tmp_path / "hurt", data)), print)
    ):
        if i == 3:
            break
    for _ in search.run_trials(plan_tuning(wish(starts["bart"], tmp_path / "hurt", data)), print):
        pass
    assert (tmp_path / "whole/model/model.safetensors").read_bytes() == (
        tmp_path / "hurt/model/model.safetensors"
    ).read_bytes()


def test_a_tuned_run_exports_its_start_token(run: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForSeq2SeqLM

    assert cli.main(["export", str(run / "model"), str(tmp_path / "out"), "--to", "hf"]) == 0
    theirs = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out").eval()
    ours = open_model(run).model
    assert theirs.config.decoder_start_token_id == 0
    ids = torch.randint(5, 261, (2, 7))
    target = torch.randint(5, 261, (2, 4))
    with torch.no_grad():
        torch.testing.assert_close(
            ours(ids, target),
            theirs(input_ids=ids, decoder_input_ids=target).logits,
            rtol=1e-5,
            atol=1e-5,
        )
