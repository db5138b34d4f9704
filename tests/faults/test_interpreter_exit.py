"""Interpreter exit during training saves the last step."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from weft.support.addresses import ObjectPath

from ..object_server import server
from .runs import Whole, child, patience, whole

__all__ = ["server", "whole"]
LEAVES_OPEN = """
import sys

import weft

recipe = weft.load_recipe(sys.argv[1])
steps = weft.train(recipe, weft.prepare(recipe.data), sys.argv[2])
print(next(steps).step, next(steps).step)
"""


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize("name", ["causal", "masked"])  # without workers, and with them
def test_a_program_that_ends_amid_its_training_saves_and_copies_the_last_step_and_says_nothing(
    whole: Whole, tmp_path: Path, name: str
) -> None:
    recipe = whole.recipes[name]
    file = tmp_path / "recipe.json"
    out = tmp_path / "run"
    copies = ObjectPath(f"s3://weft/{name}")
    recipe = replace(recipe, checkpoints=replace(recipe.checkpoints, copy_to=str(copies)))
    file.write_text(recipe.to_json())
    process = subprocess.run(
        [sys.executable, "-c", LEAVES_OPEN, file, out],
        text=True,
        capture_output=True,
        timeout=patience(60),
        check=True,
    )
    assert (process.stdout, process.stderr) == ("1 2\n", "")
    for folder in (out / "checkpoints", copies):
        assert [file.parent.name for file in folder.glob("*/manifest.json")] == ["step-000000002"]
    whole.same(name, child(recipe, out), out)
