"""Python files of the user."""

import os
import sys
from pathlib import Path

import pytest

import weft
from weft.support.user_code import import_file

FIRST_RUN = Path(__file__).parents[2] / "recipes" / "first_run.py"


@pytest.mark.parametrize("kind", ["recipe", "code"])
def test_a_file_that_changes_within_a_second_to_one_of_the_same_size_is_read_again(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    file = tmp_path / f"changing_{kind}.py"
    for name in ("first", "other"):
        file.write_text(FIRST_RUN.read_text().replace('name="first_run"', f'name="{name}"'))
        os.utime(file, (1e9, 1e9))
        if kind == "recipe":
            recipe = weft.load_recipe(str(file))
        else:
            import_file(file.stem, str(file))
            recipe = sys.modules[f"weft.support.user_code.{file.stem}"].tiny
        assert recipe.name == name
    assert not (tmp_path / "__pycache__").exists()
