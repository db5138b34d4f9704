"""The documentation prints the numbers of the receipts."""

import hashlib
import json
import re
from pathlib import Path

import pytest
from benchmarks.page import page

RESULTS = Path(__file__).parents[2] / "docs" / "results"


@pytest.mark.parametrize("file", sorted(RESULTS.glob("*.json")), ids=lambda file: file.stem)
def test_a_receipt_holds_the_result_that_its_hash_names(file):
    held = json.loads(file.read_text())
    assert (
        held["sha256"]
        == hashlib.sha256(json.dumps(held["result"], sort_keys=True).encode()).hexdigest()
    )
    assert len(held["commit"]) == 40
    assert held["command"].startswith("python -m benchmarks.")


def test_the_page_of_results_is_made_from_the_receipts():
    assert (RESULTS.parent / "results.md").read_text() == page(), (
        "python -m benchmarks.page > docs/results.md"
    )


def test_the_pictures_of_readme_show_the_numbers_of_the_receipts(tmp_path):
    pytest.importorskip("matplotlib", reason="the pictures are drawn with the extra viz")
    from benchmarks.plots import PICTURES, write

    write(tmp_path)
    for name in PICTURES:
        kept, drawn = (
            re.findall(r">([^<>]+)</text>", (folder / name).read_text())
            for folder in (RESULTS.parent, tmp_path)
        )
        assert kept == drawn, "python -m benchmarks.plots"
        assert len(kept) > 5
