"""The tables of variations and the benchmarks of mixtures: costs of rows, and reuse of finished
runs.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from benchmarks import auxiliary_lm, mixtures, multilingual, tables
from benchmarks.generated import make_data

from weft import recipe as R
from weft.plan.cost import run_flops

FILES = ("transformer", "masking", "inputs", "detr")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WEFT_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("file", FILES)
def test_every_row_of_a_papers_table_is_a_recipe_with_the_papers_figures(file: str) -> None:
    module = tables.load(file)
    names = {name for name, thing in vars(module).items() if isinstance(thing, R.Recipe)}
    steps = {name for name in names if name.startswith("steps_")}
    assert names - steps == module.PAPER.keys()
    without = {"no_auxiliary"}  # of which the paper says that it is worse, not how much
    for name, figures in module.PAPER.items():
        assert figures.keys() == (set() if name in without else module.BETTER.keys())
    assert module.MARGIN.keys() == module.BETTER.keys()
    assert len({getattr(module, name).name for name in names}) == len(names)


def test_rows_cost_as_much_as_the_base_where_the_papers_do() -> None:
    module = tables.load("transformer")
    for name in module.PAPER:
        row = getattr(module, name)
        same = name.startswith(("key", "depth", "width", "hidden"))
        assert (run_flops(row) == run_flops(module.base)) == (not same or name == "base"), name
    for file in ("masking", "inputs", "detr"):
        module = tables.load(file)
        assert len({run_flops(getattr(module, name)) for name in module.PAPER}) == 1


def part(mean: float, stdev: float | None, paper: float | None) -> dict[str, Any]:
    return {"mean": mean, "stdev": stdev, "runs": [mean] * 4, "paper": paper}


@pytest.mark.parametrize(
    ("mean", "stdev", "paper", "here", "says"),
    [
        (120.0, 1.0, 5.0, "worse", "worse"),
        (80.0, 1.0, 5.0, "better", "worse"),
        (100.5, 0.0, 4.9, "same", "same"),  # within one per cent
        (108.0, 20.0, 4.5, "same", "better"),  # within a standard error, √(20² + 0²) / √4
    ],
)
def test_a_direction_counts_beyond_the_margins(
    mean: float, stdev: float, paper: float, here: str, says: str
) -> None:
    row = tables.compare(part(mean, stdev, paper), part(100.0, 0.0, 4.91), "lower", 0.03)
    assert (row["here"], row["paper says"], row["agrees"]) == (here, says, here == says)
    other = tables.compare(part(mean, stdev, None), part(100.0, 0.0, 4.91), "lower", 0.03)
    assert "agrees" not in other


@pytest.mark.slow
def test_a_finished_row_is_not_run_again(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_data(home / "data", tables.load("transformer").base.data)
    arguments = ["transformer", "--quick", "--seeds", "1", "--rows", "base", "heads_1"]
    first = tables.main(arguments)
    assert first["base"]["perplexity"]["mean"] > 1
    assert first["heads_1"]["bleu"]["paper says"] == "worse"
    monkeypatch.setattr("benchmarks.trials.train_steps", None)
    assert tables.main(arguments) == first


@pytest.mark.slow
def test_detectors_are_compared_by_ap(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_data(home / "data", tables.load("detr").base.data)
    arguments = ["detr", "--seeds", "1", "--rows", "base", "no_auxiliary"]
    quick = tables.main([*arguments, "--quick"])
    assert quick["base"]["AP"]["mean"] <= quick["base"]["AP50"]["mean"]

    def trained(recipe: R.Recipe, output: Path, quick: bool) -> Path:
        """A run whose log has figures of its own, so that quick ones would be told from them."""
        folder = output / recipe.name
        folder.mkdir(parents=True)
        worse = 0.1 * recipe.name.startswith("table-detr-no-auxiliary")
        values = [{"ap": 0.01, "ap50": 0.02}, {"ap": 0.25 - worse, "ap50": 0.5 - worse}]
        lines = [json.dumps({"step": i + 1, "valid": each}) for i, each in enumerate(values)]
        (folder / "log.jsonl").write_text("".join(f"{line}\n" for line in lines))
        return folder

    monkeypatch.setattr(tables, "train", trained)
    rows = tables.main(arguments)
    assert (rows["base"]["AP"]["mean"], rows["base"]["AP50"]["mean"]) == (25.0, 50.0)
    assert (rows["no_auxiliary"]["AP"]["mean"], rows["no_auxiliary"]["AP"]["here"]) == (
        15.0,
        "worse",
    )
    assert "paper says" not in rows["no_auxiliary"]["AP"]


def test_a_row_of_another_recipe_or_of_another_name_is_refused(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_data(home / "data", tables.load("detr").base.data)
    arguments = ["detr", "--quick", "--seeds", "1", "--rows"]
    tables.main([*arguments, "base"])
    file = next((home / "runs" / "quick").glob("table-detr-base-0.json"))
    measured = json.loads(file.read_text())
    measured["recipe"]["steps"] = 1
    file.write_text(json.dumps(measured))
    with pytest.raises(ValueError, match=r"table-detr-base-0\.json is of another recipe"):
        tables.main([*arguments, "base"])
    with pytest.raises(ValueError, match="--rows bas: detr has base, no_positions"):
        tables.main([*arguments, "bas"])


def test_models_of_one_task_cost_a_third_of_the_mixed_one() -> None:
    recipe = R.load_recipe(str(mixtures.ROOT / "recipes" / "t5_tasks.py"))
    variants = mixtures.variants(recipe, 450)
    alone = [run_flops(each) for name, each in variants.items() if name.endswith("alone")]
    assert len(alone) == 3
    assert {sum(alone)} == {run_flops(variants[name]) for name in ("proportional", "fixed")}


def test_the_auxiliary_loss_is_all_that_differs() -> None:
    pretrained = auxiliary_lm.pretraining(10)
    with_it, without = (
        auxiliary_lm.tuning("reviews", weight, 0, pretrained, Path("runs/gpt"))
        for weight in (0.5, 0.0)
    )
    assert (
        R.replace_path(R.replace_path(with_it, "task.lm_weight", 0.0), "name", without.name)
        == without
    )


def test_an_exponent_reads_the_small_language_more_often() -> None:
    recipes = [multilingual.pretraining(("en", "de", "fr"), a, 10) for a in multilingual.EXPONENTS]
    rates = [recipe.data.train.rates.shares((800, 150, 50)) for recipe in recipes]  # type: ignore[union-attr]
    french = [share[2] / sum(share) for share in rates]
    assert french == sorted(french)
    assert french[0] == pytest.approx(0.05)
