"""Models selected by name on the command line."""

import json
from pathlib import Path

import pytest

from weft.cli import main


def test_what_is_wrong_with_a_checkpoint_is_not_said_among_the_results(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "recipe.json").write_text(json.dumps({}))
    monkeypatch.setattr("weft.recipe.recipe_of_run", lambda folder: None)
    monkeypatch.setattr(
        "weft.inference.open_model.latest_checkpoint", lambda root, say: say("step 8 is broken")
    )
    assert main(["classify", str(tmp_path), "a", "--json"]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert "weft: step 8 is broken\n" in told.err
