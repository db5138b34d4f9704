"""The bugs that `scripts/plant_bugs` plants are edits of the code as it stands."""

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUGS = runpy.run_path(str(ROOT / "scripts" / "plant_bugs"))["BUGS"]


@pytest.mark.parametrize(
    ("number", "what", "file", "old", "new"), BUGS, ids=[f"{bug[0]} {bug[1]}" for bug in BUGS]
)
def test_every_planted_bug_changes_one_place(
    number: str, what: str, file: str, old: str, new: str
) -> None:
    assert (ROOT / "src" / "weft" / file).read_text().count(old) == 1
    assert new != old


def test_all_forty_are_there() -> None:
    assert {str(number) for number in range(1, 41)} <= {bug[0] for bug in BUGS}
