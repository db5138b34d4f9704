"""F19: thousands of hostile inputs give one-line errors, within ten seconds and one gigabyte."""

from pathlib import Path

import pytest

from tests.faults.hostile import escapes

# with --long; a tenth otherwise
COUNTS = {
    "parquet": 700,
    "tokenizer": 400,
    "config": 4000,
    "header": 400,
    "template": 400,
    "archive": 400,
    "rows": 1000,
    "command": 1700,
}


@pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="the peak of memory is read from /proc"
)
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", COUNTS)
def test_no_mutated_input_escapes(kind: str, tmp_path: Path, long: bool) -> None:
    assert escapes(kind, COUNTS[kind] if long else COUNTS[kind] // 10, tmp_path) == []
