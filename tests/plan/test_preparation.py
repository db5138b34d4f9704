"""What preparing text costs: the arithmetic, and the rates that it starts from."""

import json
from pathlib import Path

import pytest

from weft import cli
from weft.plan.preparation import FILTERS, TB, TOKENISING, Preparation

RESULTS = Path(__file__).parents[2] / "docs" / "results"


def test_a_terabyte_at_two_megabytes_per_second_takes_as_many_core_hours_as_by_hand() -> None:
    preparation = Preparation(TB, cores=100, price=0.05, tokenising=2.0)
    cost = preparation.cost("tokenising")  # 500,000 seconds of one core
    assert cost["core_hours"] == pytest.approx(138.8889, rel=1e-6)
    assert cost["seconds"] == pytest.approx(5_000)
    assert cost["dollars"] == pytest.approx(6.944444, rel=1e-6)
    stages = sum(preparation.core_hours(stage) for stage in preparation.rates)
    assert preparation.core_hours() == pytest.approx(stages)
    assert Preparation(2 * TB, 200, 0.05, 2.0).cost()["seconds"] == pytest.approx(
        preparation.cost()["seconds"]
    )


def test_the_rates_are_those_of_the_receipts() -> None:
    prepare, filters = (
        json.loads((RESULTS / f"{name}.json").read_text())["result"]
        for name in ("prepare", "deduplicate")
    )
    assert pytest.approx(prepare["prepare MB/s"] / prepare["cores"]) == TOKENISING
    assert list(FILTERS.values()) == pytest.approx(list(filters["MB/s per core"].values()))


def test_a_plan_prices_a_terabyte(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--tokens", "1e9", "--cores", "10", "--core-price", "0.1", "--prepare-rate", "4"]
    assert cli.main(["plan", "gpt2-small", "--gpus", "1", *options, "--json"]) == 0
    preparation = json.loads(capsys.readouterr().out)["preparation"]
    cost = preparation["per_terabyte"]["without_filters"]
    assert cost == pytest.approx({"core_hours": 69.4444, "seconds": 25_000, "dollars": 6.94444})
    assert cli.main(["plan", "gpt2-small", "--gpus", "1", *options]) == 0
    assert "1 TB of text: 69 core-hours" in " ".join(capsys.readouterr().out.split())
    assert cli.main(["plan", "vit-base", "--gpus", "1", "--json"]) == 0
    assert "preparation" not in json.loads(capsys.readouterr().out)
