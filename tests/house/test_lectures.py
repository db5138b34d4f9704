"""The table of docs/lectures.md: every file, test, command and receipt that it names exists, and no cell is empty without a reason."""

import re
from pathlib import Path

import pytest

from weft.cli import parser

ROOT = Path(__file__).parents[2]
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (ROOT / "docs" / "lectures.md").read_text().splitlines()
    if re.match(r"\| [A-H]\d? \|", line)
]
VERBS = parser().format_help()
LINES = {"A": 9, "B": 3, "C": 6, "D": 9, "E": 6, "F": 2, "G": 6, "H": 3}


def test_every_numbered_line_has_its_row_once() -> None:
    expected = [f"{part}{n}" for part, count in LINES.items() for n in range(1, count + 1)]
    assert [row[0] for row in ROWS if row[0] != "B"] == expected


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_row_names_what_exists(row: list[str]) -> None:
    number, _, file, test, command, receipt = row
    assert receipt not in ("", "–"), f"{number} has neither a receipt nor a reason"
    for cell in (file, test):
        assert cell == "–" or (ROOT / cell.strip("`")).is_file(), cell
    assert (file == "–") == (test == "–") == (command == "–")
    if file == "–":
        assert "not" in receipt
    for name in re.findall(r"`(docs/results/[^`]+)`", receipt):
        assert (ROOT / name).is_file(), name
    if command != "–":
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
