"""Batch plans: each sample once per epoch on any number of ranks, little padding, and steps that
depend only on their position.
"""

from collections import Counter
from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft import recipe as R
from weft.data.batches.batching import (
    BatchPlanner,
    SampleIndex,
    StepPlan,
    best_fit_decreasing,
    build_planner,
    evaluation_steps,
    shape_granularity,
    slice_of_rank,
)
from weft.tasks.base import LengthLimitedSamples

from ..made import Lists

LENGTH = 64
BATCHES = {
    "rows": R.FixedBatch(size=7, length=LENGTH),
    "budget": R.TokenBudget(tokens=500, length=LENGTH, sort_pool=50),
    "packed": R.PackedBatch(size=5, length=LENGTH, pack_pool=60),
}


def lognormal(n: int, mean: float = 3.0, spread: float = 0.6) -> Lists:
    return Lists(np.random.default_rng(n).lognormal(mean, spread, n).astype(int).clip(1).tolist())


def walk(plan: BatchPlanner, position: int, stop: int) -> list[StepPlan]:
    steps = []
    while position < stop:
        steps.append(plan.at(position))
        position = steps[-1].next_position
    return steps


def picks(steps: list[StepPlan]) -> list[SampleIndex]:
    return [pick for step in steps for row in step.rows for pick in row]


@pytest.mark.parametrize("n", [1, 2, 13, 49, 50, 51, 101, 128])
@pytest.mark.parametrize("world", [1, 2, 3, 5, 7])
@pytest.mark.parametrize("kind", list(BATCHES))
def test_over_all_ranks_and_steps_every_epoch_holds_every_sample_once(
    kind: str, world: int, n: int
) -> None:
    plan = build_planner(BATCHES[kind], lognormal(n), 3, LENGTH)
    steps = walk(plan, 0, 3 * n)
    found = Counter(
        pick
        for step in steps
        for rank in range(world)
        for row in slice_of_rank(step.rows, rank, world)
        for pick in row
    )
    assert set(found.values()) == {1}
    assert {SampleIndex(epoch, i) for epoch in range(3) for i in range(n)} <= set(found)
    assert all(len(picks([step])) == step.next_position - step.position for step in steps)
    if kind != "rows":  # pools end with their epoch
        assert len(found) == 3 * n


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(list(BATCHES)),
    st.integers(1, 150),
    st.integers(0, 5),
    st.integers(0, 40),
    st.integers(0, 10**12),
)
def test_a_step_is_the_same_from_a_fresh_plan_as_from_one_that_walked_there(
    kind: str, n: int, seed: int, steps: int, far: int
) -> None:
    walked = build_planner(BATCHES[kind], lognormal(n), seed, LENGTH)
    position = far // n * n
    for _ in range(steps):
        position = walked.at(position).next_position
    assert walked.at(position) == build_planner(BATCHES[kind], lognormal(n), seed, LENGTH).at(
        position
    )


@settings(deadline=None, max_examples=30)
@given(st.sampled_from(list(BATCHES)), st.integers(1, 150), st.integers(0, 300))
def test_any_position_is_a_place_to_start_from_and_loses_nothing(
    kind: str, n: int, position: int
) -> None:
    """Also one that another batch size left behind: what is read after it is what was not read
    before it.
    """
    through = picks(walk(build_planner(BATCHES[kind], lognormal(n), 1, LENGTH), 0, position + 50))
    stop = position + 50
    begun = picks(walk(build_planner(BATCHES[kind], lognormal(n), 1, LENGTH), position, stop))
    assert begun[:50] == through[position : position + 50]


@pytest.mark.parametrize("kind", list(BATCHES))
def test_epochs_and_seeds_are_ordered_each_its_own_way(kind: str) -> None:
    n = 120
    plan, other = (build_planner(BATCHES[kind], lognormal(n), seed, LENGTH) for seed in (0, 1))
    first, second, third = (
        [p.index for p in picks(walk(*where))[:n]]
        for where in ((plan, 0, n), (plan, n, 2 * n), (other, 0, n))
    )
    for a, b in ((first, second), (first, third), (first, list(range(n)))):
        assert sum(x == y for x, y in zip(a, b, strict=True)) < 12


def padded(step: StepPlan, samples: Lists, length: int) -> tuple[int, int]:
    """Tokens with and without padding."""
    sizes = [min(samples.sizes[pick.index], length) for pick in picks([step])]
    return max(sizes) * len(sizes), sum(sizes)


def test_a_budget_is_kept_with_little_padding() -> None:
    samples = lognormal(9000)
    steps = walk(
        build_planner(R.TokenBudget(tokens=2000, length=128, sort_pool=4096), samples, 0, 128),
        0,
        9000,
    )
    whole, real = np.array([padded(step, samples, 128) for step in steps]).T
    assert whole.max() <= 2000
    assert 1 - real.sum() / whole.sum() < 0.05
    assert np.median(whole) > 1900


def test_batches_of_a_budget_are_about_equally_full_where_a_pool_makes_few() -> None:
    samples = Lists([10] * 1000)
    steps = walk(
        build_planner(R.TokenBudget(tokens=4000, length=64, sort_pool=1000), samples, 0, 64),
        0,
        1000,
    )
    assert sorted(len(step.rows) for step in steps) == [328, 336, 336]  # not 400, 400, 200


def test_numbers_have_sixteen_sizes_an_octave_and_lose_no_sixteenth() -> None:
    sizes = [n - n % shape_granularity(n) for n in range(1, 4096)]
    assert all(n - n / 16 < size <= n for n, size in enumerate(sizes, 1))
    assert len(set(sizes[1023:2047])) == 16
    assert sizes[:31] == list(range(1, 32))


def test_batches_of_a_budget_do_not_come_by_length() -> None:
    samples = lognormal(4096)
    steps = walk(build_planner(R.TokenBudget(tokens=2000, length=128), samples, 0, 128), 0, 4096)
    longest = [max(samples.sizes[p.index] for p in picks([step])) for step in steps]
    assert abs(np.corrcoef(np.arange(len(longest)), longest)[0, 1]) < 0.35
    assert len({len(step.rows) for step in steps}) > 10


def test_samples_longer_than_the_length_count_as_the_length() -> None:
    samples = Lists([1000, 10_000, 90, 1, 1] * 20)
    for batch in (
        R.TokenBudget(tokens=200, length=100, sort_pool=100),
        R.PackedBatch(size=2, length=100, pack_pool=100),
    ):
        steps = walk(build_planner(batch, samples, 0, 100), 0, 100)
        assert len(picks(steps)) == 100
        assert max(len(step.rows) for step in steps) >= 2
        for row in chain.from_iterable(step.rows for step in steps):
            assert sum(min(samples.sizes[pick.index], 100) for pick in row) <= 100


@pytest.mark.parametrize(("mean", "spread"), [(3.0, 0.6), (4.0, 0.8), (2.0, 0.3)])
def test_packed_rows_are_full_to_95_percent_and_batches_near_their_count(
    mean: float, spread: float
) -> None:
    samples = lognormal(5000, mean, spread)
    length = 256
    count = 8
    steps = walk(
        build_planner(R.PackedBatch(size=count, length=length), samples, 0, length), 0, 4096
    )
    rows = [
        sum(min(samples.sizes[pick.index], length) for pick in row)
        for step in steps
        for row in step.rows
    ]
    assert max(rows) <= length
    assert sum(rows) / (length * len(rows)) > 0.95
    assert {len(step.rows) for step in steps} <= set(range(count - 2, count + 3))


def test_a_sample_goes_where_it_leaves_least_room() -> None:
    assert sorted(sorted(row) for row in best_fit_decreasing(np.array([2, 6, 3, 5, 4]), 10)) == [
        [0, 2, 3],
        [1, 4],
    ]


def test_another_length_than_the_batchs_own_is_obeyed() -> None:
    samples = lognormal(200)
    plan = build_planner(R.PackedBatch(size=4, length=512, pack_pool=100), samples, 0, 128)
    assert plan.packed == 128
    assert (
        max(
            sum(min(samples.sizes[p.index], 128) for p in row)
            for step in walk(plan, 0, 200)
            for row in step.rows
        )
        <= 128
    )
    assert build_planner(R.PackedBatch(size=4, length=512), samples, 0).packed == 512


def test_a_budget_that_holds_no_sample_is_refused() -> None:
    with pytest.raises(
        ValueError,
        match=r"TokenBudget.tokens = 100 is less than length = 128; give more tokens or a "
        r"shorter length",
    ):
        build_planner(R.TokenBudget(tokens=100, length=128), lognormal(5), 0)


@given(st.integers(0, 100), st.integers(1, 12))
def test_shares_are_disjoint_slices_whose_sizes_differ_by_one(n: int, world: int) -> None:
    shares = [slice_of_rank(range(n), rank, world) for rank in range(world)]
    assert list(chain(*shares)) == list(range(n))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


@given(st.integers(1, 100), st.integers(1, 9), st.integers(1, 7))
def test_evaluation_sees_every_sample_once_in_as_many_steps_on_every_rank(
    n: int, rows: int, world: int
) -> None:
    plans = [list(evaluation_steps(n, rows, rank, world)) for rank in range(world)]
    assert sorted(pick.index for plan in plans for pick in picks(plan)) == list(range(n))
    assert len({len(plan) for plan in plans}) == 1
    assert all(len(step.rows) <= rows for plan in plans for step in plan)


# Samples of similar length share a step


class Texts:
    def __init__(self, lengths: list[int]) -> None:
        self.own = np.array(lengths)

    def __len__(self) -> int:
        return len(self.own)

    def __getitem__(self, i: int) -> dict[str, int]:
        return {"number": i}

    def lengths(self, indices: np.ndarray) -> np.ndarray:
        found: np.ndarray = self.own[indices]
        return found


def test_each_epoch_reads_every_sample_once_in_steps_of_count_and_little_is_padded() -> None:
    samples = LengthLimitedSamples(
        Texts(np.random.default_rng(0).integers(3, 60, 103).tolist()), 64
    )

    def walk(batch: R.FixedBatch) -> tuple[list[list[SampleIndex]], int]:
        """The steps of two epochs, and how many tokens are padding."""
        plan = build_planner(batch, samples, seed=1)
        position = 0
        steps = []
        padding = 0
        while position < 2 * len(samples):
            step = plan.at(position)
            # from any place, as a resume does
            assert build_planner(batch, samples, seed=1).at(position) == step
            steps.append([pick for (pick,) in step.rows])
            lengths = samples.lengths(np.array([pick.index for pick in steps[-1]]))
            padding += int((lengths.max() - lengths).sum())
            position = step.next_position
        return steps, padding

    steps, padding = walk(R.FixedBatch(size=8, length=64, sort_pool=32))
    assert [len(own) for own in steps].count(8) == 2 * 12
    assert len(steps) == 2 * 13
    for epoch in range(2):
        assert sorted(p.index for own in steps for p in own if p.epoch == epoch) == list(range(103))
    assert padding < 0.35 * walk(R.FixedBatch(size=8, length=64))[1]
    assert [p.index for p in steps[0]] != [p.index for p in steps[13]]
