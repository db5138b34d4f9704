"""`weft plan`: page, JSON, picture and error messages."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from weft.cli import main

ROOT = Path(__file__).parents[2]


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["plan", *words]) == 0
    out = capsys.readouterr()
    assert out.err == ""
    return out.out


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["plan", *words]) == 2
    out = capsys.readouterr()
    assert out.out == ""
    assert len(out.err.splitlines()) == 1
    return out.err


def test_a_page_prints_memory_and_time(capsys: pytest.CaptureFixture[str]) -> None:
    page = " ".join(printed(capsys, "gpt3-175b", "--gpus", "1024").split())
    for words in (
        "174,604,259,328 parameters",
        "20 per parameter",
        "1,024 × h100",
        "of 80 GB per device",
        "days",
        "YFLOP",
        "gradients",
    ):
        assert words in page


def test_json_holds_the_whole_plan(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("gpt2-xl", "--kind", "a100", "--gpus", "8", "--tokens", "1e9", "--json")
    plan = json.loads(printed(capsys, *words))
    assert plan["devices"] == 8
    assert plan["tokens"] == pytest.approx(1e9, rel=0.01)
    assert plan["fits"]
    parts = plan["memory_bytes"]
    assert parts.pop("total") == pytest.approx(sum(parts.values()))
    assert [row["devices"] for row in plan["scaling"]] == [2, 4, 8, 16, 32]


def test_options_fix_the_layout(capsys: pytest.CaptureFixture[str]) -> None:
    words = (
        "gpt3-175b --gpus 1024 --tensor 8 --shard 128 --micro-batch-size 1 --checkpointing "
        "--row-length 1024 --json"
    )
    plan = json.loads(printed(capsys, *words.split()))
    layout = {"tensor": 8, "shard": 128, "replicate": 1, "micro_batch": 1, "checkpointing": True}
    assert plan["layout"].items() >= layout.items()
    assert plan["length"] == 1024


def test_a_recipe_is_planned_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    words = (str(ROOT / "recipes/bert.py:paper"), "--kind", "tpu-v4", "--gpus", "16", "--json")
    plan = json.loads(printed(capsys, *words))
    assert (plan["steps"], plan["rows_per_step"], plan["length"]) == (1_000_000, 256, 512)
    changed = json.loads(printed(capsys, *words, "--set", "steps=1000"))
    assert changed["seconds"] == pytest.approx(plan["seconds"] / 1000)


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_a_picture_is_drawn(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, ending: str
) -> None:
    path = tmp_path / f"plan.{ending}"
    printed(capsys, "gpt2-small", "--gpus", "8", "--picture", str(path))
    begin = path.read_bytes()[:200]
    assert begin.startswith(b"\x89PNG") if ending == "png" else b"<?xml" in begin


@pytest.mark.parametrize(
    ("words", "way_out"),
    [
        ("gpt3-175b --gpus 8", "the fewest devices that fit are --gpus"),
        ("gpt3-175 --gpus 8", "did you mean 'gpt3-175b'?"),
        ("gpt2 --kind h10", "did you mean 'h100'?"),
        ("gpt2 --gpus 0", "--gpus 0: give an integer of at least 1"),
        ("gpt2 --gpus 8 --tokens -3", "--tokens -3: give a number above 0, such as 300e9"),
        ("gpt2 --gpus 8 --set steps=3", "give a recipe file"),
        ("gpt2 --gpus 8 --picture plan.txt", "use .png or .svg"),
        ("bert --gpus 8 --simulate", "omit it for this model"),
    ],
)
def test_errors_are_one_line_with_a_fix(
    capsys: pytest.CaptureFixture[str], words: str, way_out: str
) -> None:
    assert way_out in refused(capsys, *words.split())


def test_planning_does_not_import_torch() -> None:
    code = (
        "import sys; from weft.cli import main; main(['plan', 'gpt3-175b', '--gpus', '1024']); "
        "sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_table_names_the_rows_that_the_memory_of_each_line_is_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["plan", "gpt2-large", "--gpus", "16", "--json"]) == 0
    scaling = json.loads(capsys.readouterr().out)["scaling"]
    assert main(["plan", "gpt2-large", "--gpus", "16"]) == 0
    printed = capsys.readouterr().out
    assert "memory per device depends on its rows" in " ".join(printed.split())
    lines = {line.split()[0]: line.split() for line in printed.splitlines() if line.strip()}
    for row in scaling:
        rows = f"{row['layout']['micro_batch']:,}{'*' * row['layout']['checkpointing']}"
        assert rows in lines[f"{row['devices']:,}"]
