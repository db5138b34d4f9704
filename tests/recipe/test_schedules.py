"""Learning rate schedules match the papers and depend only on the step."""

from math import cos, pi
from typing import Any

import pytest

import weft
from weft import recipe as R
from weft.recipe.recipe import warmup_warning


def test_the_2017_rate_is_the_papers_formula() -> None:
    width = 512
    warmup = 4000
    for step in (1, 10, 3999, 4000, 4001, 100_000):
        paper = width**-0.5 * min(step**-0.5, step * warmup**-1.5)
        assert R.noam_lr(width, warmup) * R.InverseSqrt(warmup_steps=warmup).scale(
            step - 1, 100_000
        ) == pytest.approx(paper, rel=1e-12)


def test_linear_rises_to_the_peak_and_falls_to_its_end_in_equal_steps() -> None:
    found = [R.LinearSchedule(warmup_steps=10).scale(step, 110) for step in range(110)]
    assert found[0] == 0.1
    assert found[9] == found[10] == 1.0
    assert found[10] - found[11] == pytest.approx(0.01, rel=1e-9)
    assert found[-1] == pytest.approx(0.01, rel=1e-9)
    assert R.LinearSchedule(warmup_steps=10, final_fraction=0.1).scale(110, 110) == pytest.approx(
        0.1
    )


def test_cosine_is_a_half_wave() -> None:
    for step in range(100):
        assert R.CosineSchedule(final_fraction=0.1).scale(step, 100) == pytest.approx(
            0.1 + 0.9 * (1 + cos(pi * step / 100)) / 2, rel=1e-12
        )


def test_warmup_stable_decay_is_level_until_its_last_share() -> None:
    s = R.WarmupStableDecay(warmup_steps=10, decay_fraction=0.2)
    assert [s.scale(step, 100) for step in (4, 10, 50, 80)] == [0.5, 1.0, 1.0, 1.0]
    assert s.scale(90, 100) == pytest.approx(0.5)


@pytest.mark.parametrize(
    "s",
    [
        R.ConstantSchedule(warmup_steps=3),
        R.LinearSchedule(warmup_steps=3),
        R.CosineSchedule(warmup_steps=3),
        R.InverseSqrt(warmup_steps=3),
        R.WarmupStableDecay(warmup_steps=3),
    ],
    ids=lambda s: type(s).__name__,
)
def test_no_schedule_leaves_zero_to_one_or_steps_with_zero_before_its_end(s: R.Schedule) -> None:
    assert all(0 < s.scale(step, 50) <= 1 for step in range(50))


def test_lengths_change_at_their_share_of_the_steps() -> None:
    import weft

    recipe = R.Recipe(
        name="x",
        model=weft.bert("tiny"),
        task=R.MaskedLM(),
        steps=1000,
        optimiser=R.AdamW(lr=1e-3),
        data=R.Data(rows=R.Documents(), train=R.Source(paths=("a",))),
        batch=R.FixedBatch(size=8, length=512),
        length_schedule=((0.9, 128), (1.0, 512)),
    )
    assert [recipe.training_schedule.row_length(s) for s in (0, 899, 900, 999)] == [
        128,
        128,
        512,
        512,
    ]
    with pytest.raises(ValueError, match="end at 1"):
        R.apply_overrides(recipe, ["length_schedule=[[0.5, 128]]"])


@pytest.mark.parametrize(("warmup", "steps"), [(0, 1), (10, 10), (10, 11)])
def test_a_warmup_that_the_run_finishes_is_no_reason_to_warn(warmup: int, steps: int) -> None:
    recipe = weft.load_recipe("recipes/first_run.py", [f"steps={steps}"])
    assert warmup_warning(R.LinearSchedule(warmup_steps=warmup), recipe.steps) is None


@pytest.mark.parametrize("schedule", [R.ConstantSchedule, R.InverseSqrt, R.WarmupStableDecay])
def test_every_schedule_warns_of_a_warmup_that_outlasts_the_run(schedule: type[Any]) -> None:
    recipe = weft.load_recipe("recipes/first_run.py", ["steps=10"])
    warning = warmup_warning(schedule(warmup_steps=11), recipe.steps)
    assert "91%" in warning
    assert warning.endswith("schedule.warmup_steps=1")
