"""`weft compare`: several runs in one table and one picture."""

import json
from dataclasses import replace
from math import sqrt
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pytest

from weft import recipe as R
from weft import spec as S
from weft.cli import main
from weft.recipe import load_recipe
from weft.runs.logs.comparison import (
    STUDENT_T,
    compare_runs,
    last_values,
    mean_curve,
    quantities,
    student_t,
)
from weft.runs.logs.curve import running_mean
from weft.support.values import differing_fields

RECIPE = load_recipe(str(Path(__file__).parents[2] / "recipes" / "gpt_char.py"))


def write_run(
    folder: Path,
    seed: int = 0,
    shift: float = 0.0,
    more: dict[str, Any] | None = None,
    **change: Any,
) -> Path:
    folder.mkdir(parents=True)
    recipe: R.Recipe = replace(RECIPE, name=folder.name, seed=seed, **change)
    (folder / "recipe.json").write_text(recipe.to_json())
    lines: list[dict[str, Any]] = []
    for step in range(1, 101):
        loss = 4 - step / 50 + shift + (0.1 if step % 2 else -0.1)
        lines.append(
            {"step": step, "loss": loss, "grad_norm": 1 + shift, "lr": step / 100, **(more or {})}
        )
        if step % 50 == 0:
            lines.append({"step": step, "valid": {"loss": loss + 0.2, "accuracy": 0.5 + shift}})
    lines.append({"step": 101, "loss": 99.0, "skipped_reason": "spike", "sample_ids": [1]})
    (folder / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    return [
        write_run(tmp_path / "a0", 0, 0.0),
        write_run(tmp_path / "b", 0, 0.5, grad_clip=0.5),
        write_run(tmp_path / "a1", 1, 0.2),
        write_run(tmp_path / "a2", 2, 0.1),
    ]


def test_runs_that_differ_in_nothing_but_the_seed_are_one_curve(runs: list[Path]) -> None:
    groups = compare_runs(runs)
    assert [group.name for group in groups] == ["a0 (3 seeds)", "b"]
    assert groups[0].runs == tuple(str(runs[i]) for i in (0, 2, 3))


def test_runs_of_one_seed_are_not_called_seeds(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / name, seed) for name, seed in (("a", 1), ("b", 1), ("c", 2))]
    assert compare_runs(runs[:2])[0].name == "a (2 runs of one seed)"
    assert compare_runs(runs)[0].name == "a (3 runs of 2 seeds)"


def test_the_interval_is_that_of_students_t_written_out(runs: list[Path]) -> None:
    group = compare_runs(runs)[0]
    value = last_values(group, "validation accuracy")
    assert value is not None
    numbers = [0.5, 0.7, 0.6]
    assert value[0] == pytest.approx(mean(numbers))
    assert value[1] == pytest.approx(4.303 * stdev(numbers) / sqrt(3))
    alone = last_values(compare_runs(runs[1:2])[0], "validation accuracy")
    assert alone == (pytest.approx(1.0), None)


def test_the_table_of_students_t_is_that_of_scipy() -> None:
    stats = pytest.importorskip("scipy.stats", reason="scipy is the oracle")
    for freedom in range(1, len(STUDENT_T) + 1):
        assert student_t(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), abs=6e-4)
    assert student_t(10_000) == pytest.approx(stats.norm.ppf(0.975), abs=1e-3)


def test_a_curve_is_the_mean_of_smoothed_runs_at_the_steps_that_all_have() -> None:
    one = [(step, float(step % 3)) for step in range(1, 201)]
    other = [(step, float(step % 5)) for step in range(1, 151)]
    curve = mean_curve([one, other], smooth=True)
    assert curve.step_N.tolist() == list(range(1, 151))
    slow = [dict(running_mean(points)) for points in (one, other)]
    for i in (0, 70, 149):
        step = int(curve.step_N[i])
        assert curve.mean_N[i] == pytest.approx((slow[0][step] + slow[1][step]) / 2)
    assert mean_curve([one], smooth=False).mean_N.tolist() == [value for _, value in one]


def test_everything_that_is_logged_is_compared_and_a_skipped_step_is_not(tmp_path: Path) -> None:
    load = {"expert_load": {"entropy": 0.9, "max_share": 0.3}}
    groups = compare_runs(
        [write_run(tmp_path / "experts", more=load), write_run(tmp_path / "plain", seed=1, steps=7)]
    )
    assert quantities(groups) == [
        "training loss",
        "validation loss",
        "gradient norm",
        "learning rate",
        "validation accuracy",
        "expert load entropy",
        "largest expert share",
    ]
    assert last_values(groups[0], "expert load entropy") == (pytest.approx(0.9), None)
    assert last_values(groups[1], "expert load entropy") is None
    assert max(loss for _, loss in groups[0].series["training loss"][0]) < 5


def test_compare_prints_a_table_and_draws_pictures(
    runs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib", reason="the pictures are drawn with the extra viz")
    folders = list(map(str, runs))
    for name in ("x.png", "x.svg"):
        assert main(["compare", *folders, "--output", str(tmp_path / name)]) == 0
        assert (tmp_path / name).stat().st_size > 5000
    assert "gradient norm" in (tmp_path / "x.svg").read_text()
    printed = capsys.readouterr().out
    assert "a0 (3 seeds)" in printed.replace("\N{NO-BREAK SPACE}", " ")
    assert "±" in printed
    assert main(["compare", *folders, "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert plain[0]["last"]["validation accuracy"]["mean"] == pytest.approx(0.6)


def test_a_quantity_that_repeats_another_is_no_column(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The only term of a loss is the loss."""
    folders = [write_run(tmp_path / name, 0, shift) for name, shift in (("a", 0.0), ("b", 0.5))]
    for folder in folders:
        lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
        for line in lines:
            if "valid" in line:
                line["valid"] = {"loss": line["valid"]["loss"], "token": line["valid"]["loss"]}
        (folder / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    folders.append(write_run(tmp_path / "c", 0, 0.1, steps=7))  # has accuracy and no such term
    words = ["compare", *map(str, folders)]
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert "accuracy" in printed
    assert "token" not in printed
    assert main([*words, "--quantities", "validation token"]) == 0
    assert "token" in capsys.readouterr().out


def test_what_differs_between_the_recipes_is_named_with_each_value(
    runs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = replace(RECIPE.schedule, warmup_steps=7)
    more = write_run(tmp_path / "c", schedule=other)
    folders = [*map(str, runs), str(more)]
    assert main(["compare", *folders, "--json"]) == 0
    settings = [group["settings"] for group in json.loads(capsys.readouterr().out)]
    clip = RECIPE.grad_clip
    warmup = RECIPE.schedule.warmup_steps
    assert settings == [
        {"grad_clip": clip, "schedule.warmup_steps": warmup},
        {"grad_clip": 0.5, "schedule.warmup_steps": warmup},
        {"grad_clip": clip, "schedule.warmup_steps": 7},
    ]
    assert main(["compare", *folders]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["schedule.warmup_steps", str(warmup), str(warmup), "7"] in lines
    assert main(["compare", str(runs[0]), str(runs[2])]) == 0  # seeds of one recipe
    assert "setting" not in capsys.readouterr().out


def test_what_differs_in_some_blocks_is_named_with_their_numbers(tmp_path: Path) -> None:
    def model(*hidden: int, dropout: float = 0.0) -> S.Spec:
        look = S.Attention(heads=2, pattern=S.CausalAttention(), dropout=dropout)
        blocks = [
            S.Block(
                attention=S.pre_norm(S.LayerNorm(), look),
                feedforward=S.pre_norm(S.LayerNorm(), S.MLP(hidden=size)),
            )
            for size in hidden
        ]
        source = S.Tokens(vocab_size=11)
        return S.Spec(width=8, source=source, decoder=S.Stack(blocks=blocks), head=S.LMHead())

    def differing(*others: S.Spec) -> dict[str, Any]:
        return differing_fields(model(512, 512), *others)

    hidden = "decoder.blocks.{}.feedforward.inner.hidden"
    assert differing(model(256, 1024)) == {
        hidden.format(0): (512, 256),
        hidden.format(1): (512, 1024),
    }
    assert differing(model(512, 256)) == {hidden.format(1): (512, 256)}
    assert differing(model(256, 256)) == {hidden.format("*"): (512, 256)}
    assert differing(model(512, 256, dropout=0.1), model(512, 512)) == {
        "decoder.blocks.*.attention.inner.dropout": (0.0, 0.1, 0.0),
        hidden.format(1): (512, 256, 512),
    }


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["missing"], "missing has no log; give a run directory"),
        (["a0", "a0"], "a0 is given twice"),
        (["a0", "--quantities", "beauty"], "no run has 'beauty'; available: 'training loss'"),
        (["a0", "--output", "x.gif"], "the suffix '.gif' is not supported; use .png, .svg, .pdf"),
    ],
)
def test_errors_are_one_line_with_a_fix(
    runs: list[Path], words: list[str], message: str, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert main(["compare", *words]) == 2
    errors = capsys.readouterr().err
    assert message in errors
    assert errors.count("\n") == 1
