"""The sample order: a bijection for every n, different in every epoch, well mixed, and stable
across versions.
"""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.support.order import (
    Order,
    SampleGenerators,
    hash_to_int,
    hash_words,
    permute,
    sample_generator,
)


def test_it_is_a_bijection_for_every_number_of_samples_up_to_600() -> None:
    for n in range(1, 601):
        assert (np.sort(permute(np.arange(n), n, 7, n % 5)) == np.arange(n)).all(), n


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 2**40), st.integers(0, 2**64), st.integers(0, 10**6), st.integers(0, 2**32))
def test_it_maps_any_indices_of_any_range_to_distinct_ones_in_it(
    n: int, seed: int, epoch: int, pick: int
) -> None:
    index = np.unique(np.random.default_rng(pick).integers(0, n, 500))
    found = permute(index, n, seed, epoch)
    assert len(np.unique(found)) == len(index)
    assert found.min() >= 0
    assert found.max() < n
    assert permute(int(index[0]), n, seed, epoch) == found[0]  # one at a time or together


def test_an_index_out_of_range_is_refused() -> None:
    with pytest.raises(AssertionError, match="not below 10"):
        permute(10, 10, 0, 0)


@pytest.mark.parametrize("other", [(1, 0), (0, 1), (2**40, 0), (0, 2**40)])
def test_another_seed_or_epoch_is_another_order(other: tuple[int, int]) -> None:
    here = permute(np.arange(1000), 1000, 0, 0)
    there = permute(np.arange(1000), 1000, *other)
    assert (here == there).sum() < 10  # 1 is expected of chance


def chi_square(found: np.ndarray) -> float:
    """In deviations from what is expected of even counts."""
    even = found.sum() / found.size
    freedom = found.size - 1
    return float((((found - even) ** 2 / even).sum() - freedom) / (2 * freedom) ** 0.5)


@pytest.mark.parametrize("n", [100_000, 65_536, 65_537, 10**10])
def test_neighbours_go_anywhere(n: int) -> None:
    p = permute(np.arange(100_000) % n, n, 3, 0)[: min(n, 100_000)]
    pairs = np.histogram2d(p[:-1], p[1:], bins=20, range=[[0, n], [0, n]])[0]
    steps = np.bincount((p[1:] - p[:-1]) % n * 64 // n, minlength=64)
    assert abs(chi_square(pairs)) < 5
    assert abs(chi_square(steps)) < 5


def test_samples_move_a_third_of_the_range_on_average() -> None:
    n = 200_000
    assert abs(np.abs(permute(np.arange(n), n, 1, 2) - np.arange(n)).mean() / n - 1 / 3) < 0.005


@pytest.mark.parametrize("n", [5, 7, 12, 30])
def test_over_epochs_a_sample_comes_as_often_at_every_place(n: int) -> None:
    found = np.array([permute(np.arange(n), n, 11, epoch) for epoch in range(2000)])
    places = np.array([np.bincount(column, minlength=n) for column in found.T])
    assert abs(chi_square(places)) < 6
    assert abs(chi_square(np.bincount((found[:, 1] - found[:, 0]) % n, minlength=n)[1:])) < 6


def test_the_order_is_the_one_that_old_checkpoints_were_made_with() -> None:
    """Change nothing here: a changed order breaks every resume."""
    assert permute(np.arange(10), 10, 0, 0).tolist() == GOLDEN["10, 0, 0"]
    assert permute(np.arange(8), 1000, 1, 2).tolist() == GOLDEN["1000, 1, 2"]
    assert (
        permute(np.arange(4) + 9_999_999_990, 10**10, 12345, 6).tolist()
        == GOLDEN["10 ** 10, 12345, 6"]
    )
    assert permute(np.arange(4), 2**40, 0, 0, 3).tolist() == GOLDEN["2 ** 40, 0, 0, 3"]
    assert sample_generator(1, 2, 3).integers(0, 2**63, 3).tolist() == GOLDEN["draw 1, 2, 3"]
    assert hash_to_int(1, 2, 3) == GOLDEN["mix 1, 2, 3"]


GOLDEN: dict[str, list[int] | int] = {
    "10, 0, 0": [9, 6, 1, 5, 0, 4, 7, 3, 8, 2],
    "1000, 1, 2": [827, 606, 189, 538, 961, 502, 122, 301],
    "10 ** 10, 12345, 6": [8431041809, 2529132112, 5813768517, 5909740716],
    "2 ** 40, 0, 0, 3": [491669842586, 375197630363, 75299241946, 992512591099],
    "draw 1, 2, 3": [4141990094973353272, 6684759473048939269, 5431645506104399152],
    "mix 1, 2, 3": 6510738597406588297,
}


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 50), st.integers(0, 500), st.integers(1, 120))
def test_the_stream_is_the_epochs_one_after_the_other_from_any_position(
    n: int, position: int, count: int
) -> None:
    order = Order(n, 5)
    epochs, indices = order.at(position, count)
    for i in range(count):
        epoch, place = divmod(position + i, n)
        assert (epochs[i], indices[i]) == (epoch, permute(place, n, 5, epoch)[0])
    again = order.at(position + count // 2, 3), Order(n, 5).at(position + count // 2, 3)
    assert np.array_equal(*again)


def test_a_place_among_ten_billion_is_found_in_milliseconds() -> None:
    Order(10**10, 0).at(0, 1)
    times = []
    for i in range(5):
        start = time.process_time()
        Order(10**10, 0).at(9_876_543_210 + i, 4096)
        times.append(time.process_time() - start)
    assert min(times) < 0.01


def test_a_sample_draws_the_same_whatever_was_drawn_before_it() -> None:
    draws = SampleGenerators(9)
    draws.generator_for(0, 1).random(3, np.float32)  # leaves half a word behind
    for epoch, index in ((0, 2), (5, 2), (2**40, 10**10)):
        plain = np.random.Philox(
            key=np.array(hash_words("draw", 9)[:2], np.uint64),
            counter=np.array([0, index, epoch, 0], np.uint64),
        )
        reused = draws.generator_for(epoch, index)
        own = sample_generator(9, epoch, index)
        fresh = np.random.Generator(plain)
        for draw_some in (
            lambda g: g.random(3, np.float32),
            lambda g: g.permutation(10),
            lambda g: g.random(3, np.float32),
        ):
            some = draw_some(fresh)
            assert (some == draw_some(own)).all()
            assert (some == draw_some(reused)).all()


def test_samples_epochs_and_seeds_draw_apart() -> None:
    keys = [(0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0), (1, 1, 1), (0, 2, 0), (0, 0, 2)]
    found = np.concatenate([sample_generator(*key).integers(0, 2**63, 1000) for key in keys])
    assert len(np.unique(found)) == len(found)


def test_mixed_numbers_differ_and_fit_a_seed_of_torch() -> None:
    found = {hash_to_int(a, b) for a in range(50) for b in range(50)}
    assert len(found) == 2500
    assert all(0 <= number < 2**63 for number in found)
