"""What the pages print is what the receipts hold."""
import hashlib
import json
from pathlib import Path

import pytest
from benchmarks.page import page

RESULTS = Path(__file__).parents[1] / "docs" / "results"


@pytest.mark.parametrize("file", sorted(RESULTS.glob("*.json")), ids=lambda file: file.stem)
def test_a_receipt_holds_the_result_that_its_hash_names(file):
    held = json.loads(file.read_text())
    assert held["sha256"] == hashlib.sha256(json.dumps(held["result"], sort_keys=True).encode()).hexdigest()
    assert len(held["commit"]) == 40
    assert held["command"].startswith("python -m benchmarks.")


def test_the_page_of_results_is_made_from_the_receipts():
    assert (RESULTS.parent / "results.md").read_text() == page(), "python -m benchmarks.page > docs/results.md"
