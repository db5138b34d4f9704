"""A run that is given more steps: bit for bit the run that had them from the beginning, or refused
with the reason.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from weft import recipe as R
from weft.runs import run
from weft.runs.logs.log import is_finished
from weft.training.checkpoints.checkpoint import all_checkpoints

from .runs import child, model_bytes, told
from .test_run_folder import own, refused

KINDS: dict[str, dict[str, Any]] = {
    "constant": {"schedule": R.ConstantSchedule(warmup_steps=3)},
    "inverse root, moving average": {
        "schedule": R.InverseSqrt(warmup_steps=2),
        "average": R.EMA(decay=0.8),
        "eval_every": 4,
    },
    "last checkpoints": {
        "schedule": R.ConstantSchedule(),
        "average": R.AverageLast(checkpoints=3),
        "checkpoints": R.Checkpoints(every_steps=3),
    },
    "best, validated at the old end": {
        "schedule": R.ConstantSchedule(),
        "average": R.BestCheckpoint(),
        "eval_every": 4,
    },
    "best, not validated there": {
        "schedule": R.ConstantSchedule(),
        "average": R.BestCheckpoint(),
        "eval_every": 3,
    },
    "one length, guard": {
        "schedule": R.ConstantSchedule(),
        "length_schedule": ((1.0, 12),),
        "guard": R.LossGuard(spike_deviations=4.0, window=4, max_skipped_steps=99),
    },
}


@pytest.mark.parametrize("kind", KINDS)
def test_an_extended_run_is_the_run_that_had_all_steps_from_the_beginning(
    kind: str, tmp_path: Path
) -> None:
    short = own(tmp_path / "data", **KINDS[kind])
    out = tmp_path / "run"
    whole = tmp_path / "whole"
    longer = replace(short, steps=14)
    assert isinstance(child(short, out), str)
    assert is_finished(out)
    assert child(longer, out) == child(longer, whole)
    assert told(out) == told(whole)
    assert model_bytes(out) == model_bytes(whole)
    assert R.recipe_of_run(out) == longer


def test_warmup_stable_decay_is_extended_before_its_decay_alone(tmp_path: Path) -> None:
    recipe = own(
        tmp_path / "data",
        schedule=R.WarmupStableDecay(warmup_steps=2, decay_fraction=0.25),
        checkpoints=R.Checkpoints(every_steps=6),
    )
    out = tmp_path / "run"

    def stop(made: run.Run, event: Any) -> None:
        made.trainer.stop_requested = bool(event and event.step == 6)

    child(recipe, out, stop)  # 6 of 8: the decay begins with the next step
    assert [c.step for c in all_checkpoints(out / "checkpoints")] == [6]
    longer = replace(recipe, steps=16)
    assert child(longer, out) == child(longer, tmp_path / "whole")
    said = refused(replace(recipe, steps=20), out)
    assert (
        "steps was 16; with steps=20 the WarmupStableDecay schedule would have had a learning rate "
        "of 0.003 at step 14, not " in said
    )


@pytest.mark.parametrize(
    ("more", "steps", "line"),
    [
        (
            {"schedule": R.LinearSchedule(warmup_steps=3)},
            9,
            "the LinearSchedule schedule would have had a learning rate of 0.0025 at step 5, not "
            "0.0024",
        ),
        (
            {"schedule": R.CosineSchedule(warmup_steps=3)},
            9,
            "the CosineSchedule schedule would have had",
        ),
        (
            {"schedule": R.ConstantSchedule(), "length_schedule": ((0.5, 12), (1.0, 32))},
            16,
            "step 5 would have had rows of 12 tokens, not 32",
        ),
        ({"schedule": R.ConstantSchedule()}, 7, "8 steps are already done"),
    ],
)
def test_what_would_change_the_past_is_refused_with_the_reason(
    more: dict[str, Any], steps: int, line: str, tmp_path: Path
) -> None:
    recipe = own(tmp_path / "data", **more)
    out = tmp_path / "run"
    assert isinstance(child(recipe, out), str)
    said = refused(replace(recipe, steps=steps), out)
    assert line in said
    assert (
        f"{out}/checkpoints/step-000000008 was saved with a different recipe: steps was 8" in said
    )
    assert is_finished(out)
    assert R.recipe_of_run(out) == recipe
