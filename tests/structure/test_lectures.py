"""The table of docs/lectures.md: every file, test and command that it names exists, and every
figure stands in its receipt.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from weft.cli import main
from weft.commands.verbs import parser

ROOT = Path(__file__).parents[2]
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (ROOT / "docs" / "lectures.md").read_text().splitlines()
    if re.match(r"\| [A-H]\d? \|", line)
]
VERBS = parser().format_help()
LINES = {"A": 9, "B": 3, "C": 6, "D": 9, "E": 6, "F": 2, "G": 6, "H": 3}
RECEIPT = re.compile(r"`(docs/results/[^`]+)`:")
FIGURE = re.compile(r"`([^`]+)` = (\d[\d.]*(?:e-?\d+)?)")
COUNTED = re.compile(r"`weft show` prints ([\d,]+)")


def test_every_numbered_line_has_its_row_once() -> None:
    expected = [f"{part}{n}" for part, count in LINES.items() for n in range(1, count + 1)]
    assert [row[0] for row in ROWS if row[0] != "B"] == expected


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_row_names_what_exists(row: list[str]) -> None:
    number, _, file, test, command, shown = row
    assert len(shown) > 1, f"{number} has neither a figure nor a reason"
    for cell in (file, test):
        assert (ROOT / cell.strip("`")).is_file(), cell
    check_command(command.strip("`").split())


def check_command(words: list[str]) -> None:
    """The verb, the module, the example or the recipe is there."""
    if words[:2] == ["python", "-m"]:
        assert (ROOT / f"{words[2].replace('.', '/')}.py").is_file(), words[2]
    elif words[0] == "python":
        assert (ROOT / words[1]).is_file(), words[1]
    else:
        assert words[0] == "weft"
        assert re.search(rf"^ +{words[1]} ", VERBS, re.M), words[1]
    for word in words:
        if word.startswith("recipes/"):
            assert (ROOT / word.partition(":")[0]).is_file(), word


def figures(cell: str) -> dict[str, list[tuple[str, str]]]:
    """Per receipt that a cell names, the places in it and the figures that should stand there."""
    _, *parts = RECEIPT.split(cell)
    return {name: FIGURE.findall(text) for name, text in zip(parts[::2], parts[1::2], strict=True)}


def value_at(result: Any, place: str) -> float:
    for key in place.split(" > "):
        result = result[int(key)] if isinstance(result, list) else result[key]
    return float(result)


def as_printed(value: float, figure: str) -> str:
    """Round a value to the digits of a figure."""
    if "e" in figure:
        digits = len(figure.partition("e")[0].partition(".")[2])
        return f"{value:.{digits}e}"
    return f"{value:.{len(figure.partition('.')[2])}f}"


@pytest.mark.parametrize(
    "row", [row for row in ROWS if "docs/results/" in row[5]], ids=lambda row: row[0]
)
def test_the_figures_of_a_row_stand_in_its_receipt(row: list[str]) -> None:
    named = figures(row[5])
    assert len(named) == row[5].count("docs/results/"), "a receipt is named without `:` and figures"
    for name, places in named.items():
        assert places, f"{row[0]} names {name} without a figure"
        result = json.loads((ROOT / name).read_text())["result"]
        for place, figure in places:
            assert as_printed(value_at(result, place), figure) == figure, f"{name}: {place}"


@pytest.mark.parametrize("row", [row for row in ROWS if COUNTED.search(row[5])], ids=lambda r: r[0])
def test_a_counted_figure_is_what_the_command_prints(
    row: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    counted = COUNTED.search(row[5])
    assert counted is not None
    main(row[4].strip("`").split()[1:])
    assert counted[1] in capsys.readouterr().out


def test_a_changed_figure_is_noticed() -> None:
    cell = (
        "`docs/results/multi30k.json`: BLEU `mean > test_2016_flickr > BLEU` = 40.15; `beams` = 4"
    )
    assert figures(cell) == {
        "docs/results/multi30k.json": [("mean > test_2016_flickr > BLEU", "40.15"), ("beams", "4")]
    }
    assert as_printed(40.1534, "40.15") == "40.15"
    assert as_printed(40.1434, "40.15") != "40.15"
    assert as_printed(4.17e-06, "4.2e-06") == "4.2e-06"
