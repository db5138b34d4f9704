"""The benchmarks of the lectures run in small, on text of their own."""

import gzip
import json
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
from benchmarks import command, deep_encoders, few_labels, realm, recurrent, scaling

from weft.support import registry, user_code

WORDS = [
    "loom",
    "warp",
    "weft",
    "shuttle",
    "thread",
    "cloth",
    "yarn",
    "Paris",
    "Lyon",
    "1804",
    "1840",
    "Kay",
    "Joseph",
]


def sentences(count: int, seed: int) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(["the", *rng.choice(WORDS, 9), "."]) for _ in range(count)]


BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.parametrize("name", sorted(path.stem for path in BENCHMARKS.glob("*.py")))
def test_every_benchmark_can_be_imported(name: str) -> None:
    import_module(f"benchmarks.{name}")


def test_a_wrong_input_of_a_benchmark_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmarks/tables.py"])

    def main() -> None:
        raise ValueError("no such\n  row")

    with pytest.raises(SystemExit) as ended:
        command.run(main)
    assert ended.value.code == 2
    assert capsys.readouterr().err == "tables: no such row\n"


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Data of the published names, and no trace of the examples that a benchmark loads."""
    monkeypatch.setenv("WEFT_DATA", str(tmp_path))
    monkeypatch.setenv(user_code.ENVIRONMENT, "")
    for folder in ("wikitext-2", "multi30k"):
        (tmp_path / folder).mkdir()
    for i, split in enumerate(("train", "valid")):
        lines = sentences(400 - 300 * i, i)
        articles = [
            (f" = {WORDS[n % 13]} = \n" if n % 4 == 0 else "") + f" {line} {line} {line} \n"
            for n, line in enumerate(lines)
        ]
        file = tmp_path / "wikitext-2" / f"wiki.{split}.tokens.gz"
        file.write_bytes(gzip.compress("".join(articles).encode()))
    for split, count in (("train", 64), ("val", 8), ("test_2016_flickr", 4)):
        for seed, language in enumerate(("en", "de")):
            text = "".join(f"{line}\n" for line in sentences(count, seed))
            file = tmp_path / "multi30k" / f"{split}.{language}.gz"
            file.write_bytes(gzip.compress(text.encode()))
    before = dict(registry.CHOICES), dict(registry.IMPLEMENTATIONS), dict(user_code.LOADED)
    threads = torch.get_num_threads()
    yield tmp_path
    torch.set_num_threads(threads)
    tables = (registry.CHOICES, registry.IMPLEMENTATIONS, user_code.LOADED)
    for table, rows in zip(tables, before, strict=True):
        table.clear()
        table.update(rows)
    for name in ("bahdanau", "realm"):
        sys.modules.pop(f"weft.support.user_code.{name}", None)


def last_line(capsys: pytest.CaptureFixture[str]) -> object:
    return json.loads(capsys.readouterr().out.splitlines()[-1])


@pytest.mark.slow
def test_branches_of_the_ladder_are_what_whole_runs_of_their_length_are(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = scaling.main(["--quick", "--output", str(small / "runs")])
    assert last_line(capsys) == result
    assert len(result["points"]) == 12
    depth = 1
    width = 16
    whole = scaling.ladder_recipe(depth, width, 16, 32)
    assert result["points"][1]["loss"] == round(scaling.valid_loss(whole, small / "whole"), 4)


def test_the_fit_finds_the_law_that_the_points_were_made_with() -> None:
    points = [
        {
            "parameters": n,
            "bytes": d,
            "flops": 6.0 * n * d,
            "loss": 1.2 + 40 / n**0.4 + 30 / d**0.3,
        }
        for n in (1e4, 3e4, 1e5, 3e5, 1e6)
        for d in (1e5, 3e5, 1e6, 3e6)
    ]
    law = scaling.fit(points, samples=20)["value, low, high"]
    for name, true in (("log_E", np.log(1.2)), ("a", 0.4), ("b", 0.3)):
        value, low, high = law[name]
        assert value == pytest.approx(true, rel=0.02, abs=0.01)
        assert low - 0.02 <= true <= high + 0.02


@pytest.mark.slow
def test_a_quick_run_compares_deep_encoders(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = deep_encoders.main(["--quick", "--output", str(small / "runs")])
    assert last_line(capsys) == result
    assert set(result["kinds"]) == set(deep_encoders.KINDS)
    assert result["kinds"]["DLCL"]["2"]["failed"] in (0, 1)


@pytest.mark.slow
def test_a_quick_run_compares_what_few_labels_give(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    (small / "cifar10").mkdir()
    for split, count in (("train", 200), ("test", 20)):
        images = rng.integers(0, 256, (count, 32, 32, 3), np.uint8)
        np.savez(small / "cifar10" / f"{split}.npz", images=images, labels=np.arange(count) % 10)
    result = few_labels.main(["--quick", "--labels", "0.5", "--output", str(small / "runs")])
    assert last_line(capsys) == result
    rows = result["rows"]
    assert list(rows) == [
        "scratch",
        "fine-tuned",
        "linear",
        "fine-tuned at 64 pixels",
        "least squares",
    ]
    assert [score["shots"] for score in rows.pop("least squares")] == [1, 5, 10, None]
    assert all(0 <= row["mean"] <= 1 for row in rows.values())


@pytest.mark.slow
def test_a_quick_run_compares_recurrent_and_transformer_and_draws_an_alignment(
    small: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib", reason="the picture is drawn with the extra viz")
    monkeypatch.setattr(recurrent, "VOCABULARY", 150)
    picture = small / "alignment.svg"
    result = recurrent.main(["--quick", "--output", str(small / "runs"), "--plot", str(picture)])
    assert last_line(capsys) == result
    assert {row["budget"] for row in result["runs"]} == {"equal FLOPs", "equal time"}
    assert "<svg" in picture.read_text()


@pytest.mark.slow
def test_a_quick_run_compares_retrieval_with_none(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = realm.main(["--quick"])
    assert last_line(capsys) == result
    assert set(result["mean"]) == {"retrieved", "random", "none, equal steps", "none, equal FLOPs"}
    longer, short = (
        result["runs"][0][f"none, equal {name}"]["steps"] for name in ("FLOPs", "steps")
    )
    assert longer > 2 * short
