"""Rates are what the papers say, and a function of the step alone."""
from math import cos, pi

import pytest

from weft import recipe as R
from weft.train.schedule import scale


def test_the_2017_rate_is_the_papers_formula() -> None:
    width, warmup = 512, 4000
    for step in (1, 10, 3999, 4000, 4001, 100_000):
        paper = width ** -0.5 * min(step ** -0.5, step * warmup ** -1.5)
        assert R.rate_2017(width, warmup) * scale(R.InverseRoot(warmup=warmup), step - 1, 100_000) == pytest.approx(paper, rel=1e-12)


def test_linear_rises_to_the_peak_and_falls_to_its_end_in_equal_steps() -> None:
    found = [scale(R.Linear(warmup=10), step, 110) for step in range(110)]
    assert found[0] == 0.1
    assert found[9] == found[10] == 1.0
    assert found[10] - found[11] == pytest.approx(0.01, rel=1e-9)
    assert found[-1] == pytest.approx(0.01, rel=1e-9)
    assert scale(R.Linear(warmup=10, end=0.1), 110, 110) == pytest.approx(0.1)


def test_cosine_is_a_half_wave() -> None:
    for step in range(100):
        assert scale(R.Cosine(end=0.1), step, 100) == pytest.approx(0.1 + 0.9 * (1 + cos(pi * step / 100)) / 2, rel=1e-12)


def test_warmup_stable_decay_is_level_until_its_last_share() -> None:
    s = R.WarmupStableDecay(warmup=10, decay=0.2)
    assert [scale(s, step, 100) for step in (4, 10, 50, 80)] == [0.5, 1.0, 1.0, 1.0]
    assert scale(s, 90, 100) == pytest.approx(0.5)


def test_constant_stays() -> None:
    assert {scale(R.Constant(), step, 10) for step in range(1000)} == {1.0}


@pytest.mark.parametrize("s", [R.Constant(warmup=3), R.Linear(warmup=3), R.Cosine(warmup=3), R.InverseRoot(warmup=3),
                               R.WarmupStableDecay(warmup=3)], ids=lambda s: type(s).__name__)
def test_no_schedule_leaves_zero_to_one_or_steps_with_zero_before_its_end(s: R.Schedule) -> None:
    assert all(0 < scale(s, step, 50) <= 1 for step in range(50))


def test_lengths_change_at_their_share_of_the_steps() -> None:
    import weft
    recipe = R.Recipe(name="x", model=weft.bert("tiny"), objective=R.MaskedTokens(), steps=1000, optimiser=R.AdamW(rate=1e-3),
                      data=R.Data(row=R.Documents(), train=R.Source(paths=("a",))), batch=R.Rows(count=8, length=512),
                      lengths=((0.9, 128), (1.0, 512)))
    assert [recipe.length(s) for s in (0, 899, 900, 999)] == [128, 128, 512, 512]
    with pytest.raises(ValueError, match="end at 1"):
        R.change(recipe, ["lengths=[[0.5, 128]]"])
