"""The log: whole lines whatever happened, cut where a run goes on, drawn as a picture."""
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from weft.train.curve import curve, ticks
from weft.train.log import Log, read


def lines(*steps: int) -> str:
    return "".join(json.dumps({"step": s, "loss": 1 / s}) + "\n" for s in steps)


@pytest.mark.parametrize(("before", "step", "kept"), [("", 0, []), (lines(1, 2, 3), 2, [1, 2]), (lines(1, 2, 3) + '{"ste', 3, [1, 2, 3]),
                                                    (lines(1, 2, 3), 0, []), (lines(1, 2) + '{"ste', 1, [1]), ('{"x', 4, [])])
def test_a_log_is_cut_at_the_step_that_a_run_goes_on_from(before: str, step: int, kept: list[int], tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text(before)
    with Log(tmp_path, step) as log:
        log.write(step=step + 1, loss=0.5)
    assert [line["step"] for line in read(tmp_path / "log.jsonl")] == [*kept, step + 1]


def test_the_curve_is_a_picture_with_every_series() -> None:
    found = curve([{"step": s, "loss": 5 / s} for s in range(1, 3000)] + [{"step": 2999, "valid": {"loss": 0.1}}], "a <run>")
    tree = ElementTree.fromstring(found)
    assert len([e for e in tree.iter() if e.tag.endswith("polyline")]) == 3
    assert len(found) < 60_000
    assert curve([], "empty").startswith("<svg")


def test_ticks_are_round_and_inside() -> None:
    for low, high in ((0, 2000), (1.47, 4.2), (0.001, 0.0042), (3, 3.00001)):
        found = ticks(low, high)
        assert 1 <= len(found) <= 8
        assert all(low - 1e-9 <= t <= high + 1e-9 for t in found)
