"""`weft tune` on decoders: GPT's similarity in both orders, entailment with a delimiter, multiple
choice, the auxiliary next-token loss.
"""

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
from weft.inference.open_model import open_model
from weft.interop.saving import save
from weft.nn.model import build
from weft.studies import search

from ..commands.test_tune import endings, pairs, tagged
from ..commands.tuned_data import bert, write_examples


@pytest.fixture(scope="module")
def starts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
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
    shape: dict[str, Any] = {"depth": 2, "width": 16, "heads": 2, "hidden": 32, "vocab_size": 261}
    specs = {
        "gpt2": weft.gpt2(**shape, positions=96),
        "free": weft.llama(**shape, kv_heads=2, tied=False),
        "bert": bert(S.NoHead()),
    }
    for name, spec in specs.items():
        save(build(spec, seed=7), folder / name, to="weft")
        shutil.copy(folder / "prepared" / "tokenizer.json", folder / name / "tokenizer.json")
    return {name: folder / name for name in specs}


def wish(start: Path, out: Path, data: Path, **more: Any) -> TuneOptions:
    given: dict[str, Any] = {
        "learning_rates": (3e-3,),
        "seeds": 1,
        "epochs": 1,
        "batch_size": 8,
        "precision": "fp32",
        **more,
    }
    return TuneOptions(checkpoint=str(start), data=(str(data),), output=str(out), **given)


def test_a_pair_with_a_score_is_read_in_both_orders_unless_a_task_says_otherwise(
    starts: dict[str, Path], tmp_path: Path
) -> None:
    data = pairs(tmp_path / "scores.tsv", True)
    lines = list[str]()
    made = plan_tuning(wish(starts["gpt2"], tmp_path / "a", data, lm_weight=0.5), lines.append)
    assert made.recipe.task == R.Regression(input_format="gpt", both_orders=True, lm_weight=0.5)
    assert (made.task, made.metric) == ("similarity", "pearson")
    assert "similarity, read in both orders; --task regress reads one order" in lines[0]
    assert plan_tuning(
        wish(starts["gpt2"], tmp_path / "b", data, task="regress")
    ).recipe.task == R.Regression(input_format="gpt")
    assert plan_tuning(wish(starts["bert"], tmp_path / "c", data)).recipe.task == R.Regression()
    assert plan_tuning(
        wish(starts["bert"], tmp_path / "d", data, task="similarity")
    ).recipe.task == R.Regression(both_orders=True)


def test_a_pair_with_a_class_is_entailment_or_if_asked_similarity(
    starts: dict[str, Path], tmp_path: Path
) -> None:
    data = pairs(tmp_path / "pairs.tsv", False)
    assert plan_tuning(wish(starts["gpt2"], tmp_path / "a", data)).recipe.task == R.Classification(
        input_format="gpt"
    )
    made = plan_tuning(wish(starts["gpt2"], tmp_path / "b", data, task="similarity"))
    assert (made.recipe.task, made.metric) == (
        R.Classification(input_format="gpt", both_orders=True),
        "accuracy",
    )


@pytest.mark.parametrize(
    ("make", "more"),
    [
        (lambda f: pairs(f / "scores.tsv", True), ()),
        (lambda f: pairs(f / "pairs.tsv", False), ("--task", "similarity")),
        (lambda f: pairs(f / "pairs.tsv", False), ()),
        (lambda f: endings(f / "endings.jsonl"), ()),
    ],
    ids=["score", "similarity", "entailment", "choice"],
)
def test_each_is_tuned_with_the_auxiliary_loss_logged_and_scored(
    make: Any,
    more: tuple[str, ...],
    starts: dict[str, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "run"
    assert (
        cli.main(
            [
                "tune",
                str(starts["gpt2"]),
                "--data",
                str(make(tmp_path)),
                "--output",
                str(out),
                "--learning-rates",
                "3e-3",
                "--seeds",
                "1",
                "--epochs",
                "1",
                "--batch-size",
                "8",
                "--precision",
                "fp32",
                "--lm-weight",
                "0.5",
                *more,
            ]
        )
        == 0
    )
    dev = json.loads((out / "tune.json").read_text())["trials"][0]["valid"]
    task = next(name for name in ("class", "number", "choice") if name in dev)
    assert dev["loss"] == pytest.approx(dev[task] + 0.5 * dev["token"], rel=1e-9)
    assert dev["token"] > 1
    capsys.readouterr()
    assert cli.main(["evaluate", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["scores"]


def test_a_tuned_similarity_answers_the_same_for_both_orders(
    starts: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in search.run_trials(
        plan_tuning(wish(starts["gpt2"], tmp_path / "run", pairs(tmp_path / "scores.tsv", True))),
        print,
    ):
        pass
    assert (
        cli.main(
            [
                "classify",
                str(tmp_path / "run"),
                "--pairs",
                "the loom",
                "a warp",
                "a warp",
                "the loom",
                "--json",
            ]
        )
        == 0
    )
    one, other = (row["prediction"] for row in json.loads(capsys.readouterr().out))
    assert one == pytest.approx(other, abs=1e-5)


def test_a_run_with_the_auxiliary_loss_that_was_broken_off_ends_the_same(
    starts: dict[str, Path], tmp_path: Path
) -> None:
    data = pairs(tmp_path / "scores.tsv", True)
    for out, steps in (("whole", 99), ("hurt", 2), ("hurt", 99)):
        for i, _ in enumerate(
            search.run_trials(
                plan_tuning(wish(starts["gpt2"], tmp_path / out, data, lm_weight=0.5)), print
            )
        ):
            if i == steps:
                break
    assert (tmp_path / "whole/model/model.safetensors").read_bytes() == (
        tmp_path / "hurt/model/model.safetensors"
    ).read_bytes()


@pytest.mark.parametrize("name", ["bert", "free"])
def test_the_auxiliary_loss_needs_a_decoder_whose_head_is_its_table(
    name: str, starts: dict[str, Path], tmp_path: Path
) -> None:
    with pytest.raises(
        ValueError, match=r"--lm-weight 0\.5 is for classify, pair and choose with a decoder"
    ):
        plan_tuning(
            wish(
                starts[name], tmp_path / "run", pairs(tmp_path / "pairs.tsv", False), lm_weight=0.5
            )
        )
    with pytest.raises(ValueError, match="--columns TEXT TEXT LABEL"):
        plan_tuning(
            wish(
                starts[name],
                tmp_path / "run",
                write_examples(tmp_path / "a.jsonl", 30),
                task="similarity",
            )
        )


# Frozen features, from the command


def test_a_head_on_the_last_four_layers_is_tuned_scored_and_opens(
    starts: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = S.replace(bert(S.NoHead()), encoder=S.Stack(blocks=bert().encoder.blocks[:1] * 5))  # type: ignore[union-attr]
    save(build(spec), tmp_path / "deep", to="weft")
    shutil.copy(starts["bert"] / "tokenizer.json", tmp_path / "deep" / "tokenizer.json")
    out = tmp_path / "run"
    assert (
        cli.main(
            [
                "tune",
                str(tmp_path / "deep"),
                "--data",
                str(tagged(tmp_path / "tags.txt")),
                "--output",
                str(out),
                "--learning-rates",
                "3e-3",
                "--seeds",
                "1",
                "--epochs",
                "1",
                "--batch-size",
                "8",
                "--precision",
                "fp32",
                "--freeze-body",
                "--head-layers",
                "concat-last-four",
            ]
        )
        == 0
    )
    model = open_model(out).model
    assert model.spec.layer_mix == S.LayerMix(layers=(-4, -3, -2, -1))
    assert model.head.out.weight.shape == (2, 4 * 16)  # type: ignore[union-attr]
    trained = build(spec).state_dict()["encoder.blocks.3.feedforward.inner.up.weight"]
    assert torch.equal(model.state_dict()["encoder.blocks.3.feedforward.inner.up.weight"], trained)
    capsys.readouterr()
    assert cli.main(["tag", str(out), "the loom holds", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)[0]["prediction"]) == 3
    assert cli.main(["evaluate", str(out), "--json"]) == 0
