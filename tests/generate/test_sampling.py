"""Filtered logits compared with transformers, and the sampling of tokens."""

import numpy as np
import pytest
import torch
import transformers.generation.logits_process as T

from weft.generate.sampling import (
    Sampling,
    apply_repetition_penalty,
    argmax,
    chunked_topk,
    filter_logits,
    sample_from,
    uniform,
)


def logits(seed: int = 0) -> torch.Tensor:
    return torch.randn(6, 50, generator=torch.Generator().manual_seed(seed)) * 3


@pytest.mark.parametrize(
    ("how", "theirs"),
    [
        (dict(temperature=0.7), [T.TemperatureLogitsWarper(0.7)]),
        (dict(top_k=5), [T.TopKLogitsWarper(5)]),
        (dict(top_k=80), [T.TopKLogitsWarper(80)]),
        (dict(top_p=0.6), [T.TopPLogitsWarper(0.6)]),
        (dict(top_p=0.01), [T.TopPLogitsWarper(0.01)]),
        (dict(min_p=0.2), [T.MinPLogitsWarper(0.2)]),
        (dict(min_p=1.0), [T.MinPLogitsWarper(1.0)]),
        (
            dict(temperature=1.3, top_k=20, top_p=0.8, min_p=0.05),
            [
                T.TemperatureLogitsWarper(1.3),
                T.TopKLogitsWarper(20),
                T.TopPLogitsWarper(0.8),
                T.MinPLogitsWarper(0.05),
            ],
        ),
    ],
)
def test_narrowed_scores_are_transformers(
    how: dict[str, float], theirs: list[T.LogitsProcessor]
) -> None:
    truth = logits()
    for one in theirs:
        truth = one(None, truth)
    found = filter_logits(logits(), Sampling(**how))
    assert torch.equal(found.isinf(), truth.isinf())
    assert (found - truth)[~truth.isinf()].abs().max() < 1e-6


@pytest.mark.parametrize("penalty", [0.5, 1.7])
def test_the_penalty_on_repetition_is_transformers(penalty: float) -> None:
    said = torch.randint(0, 50, (6, 9))
    seen = torch.zeros(6, 50, dtype=torch.bool).scatter(1, said, True)
    assert (
        apply_repetition_penalty(logits(), seen, penalty)
        - T.RepetitionPenaltyLogitsProcessor(penalty)(said, logits())
    ).abs().max() < 1e-6


def test_equal_scores_at_the_edge_of_top_k_stay_together() -> None:
    assert filter_logits(
        torch.tensor([[1.0, 2.0, 2.0, 0.0]]), Sampling(top_k=1)
    ).isinf().tolist() == [[True, False, False, True]]


def test_no_temperature_is_too_cold() -> None:
    for cold in (1e-29, 1e-38, 1e-320):
        narrowed = filter_logits(logits(), Sampling(temperature=cold, top_p=0.9, min_p=0.1))
        assert sample_from(narrowed, uniform(range(6), 0)).tolist() == argmax(logits()).tolist()


def test_draws_follow_the_probabilities() -> None:
    """Chi-square of 20,000 draws over 50 tokens; the draws have fixed seeds."""
    p = logits()[:1].softmax(-1)
    token = sample_from(logits()[:1].expand(20_000, -1), uniform(range(20_000), 3))
    seen = token.bincount(minlength=50).double()
    truth = 20_000 * p[0].double()
    large = truth > 5
    assert ((seen - truth)[large] ** 2 / truth[large]).sum() < 1.6 * large.sum()


def test_what_has_no_probability_is_never_drawn() -> None:
    narrowed = filter_logits(logits(), Sampling(top_k=3))
    for step in range(200):
        token = sample_from(narrowed, uniform(range(6), step))
        assert not narrowed.gather(1, token[:, None]).isinf().any()
    edges = torch.tensor([0.0, 1 - 2.0**-53], dtype=torch.float64)
    assert sample_from(torch.tensor([[float("-inf"), 0.0, float("-inf")]] * 2), edges).tolist() == [
        1,
        1,
    ]


def test_a_rows_number_depends_on_its_seed_and_step_alone() -> None:
    together = uniform([3, 2**70 + 4, -1], 9)
    assert [float(uniform([seed], 9)) for seed in (3, 2**70 + 4, -1)] == together.tolist()
    steps = uniform([3] * 10_000, np.arange(10_000))
    assert float(steps[9]) == float(together[0])
    many = torch.stack(
        [steps, uniform(range(10_000), 0), uniform([3] * 10_000, np.arange(10_000), stream=1)]
    )
    assert many.min() >= 0
    assert many.max() < 1
    assert (many.mean(1) - 0.5).abs().max() < 0.01
    assert (many.corrcoef() - torch.eye(3)).abs().max() < 0.03
    assert (many[:, 1:] - many[:, :-1]).abs().mean(1).sub(1 / 3).abs().max() < 0.01, (
        "neighbours are not independent"
    )


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("temperature", -1.0),
        ("top_k", 0),
        ("top_p", 0.0),
        ("top_p", 1.5),
        ("min_p", 2.0),
        ("repetition_penalty", 0.0),
    ],
)
def test_a_wrong_setting_names_itself(name: str, wrong: float) -> None:
    with pytest.raises(ValueError, match=f"Sampling.{name} = "):
        Sampling(**{name: wrong})


@pytest.mark.parametrize("size", [50, 5000, 8192])
def test_the_quick_ways_to_the_largest_are_torchs(size: int) -> None:
    many = torch.randn(5, size, generator=torch.Generator().manual_seed(2))
    assert torch.equal(argmax(many), many.argmax(-1))
    for count in (1, 8):
        for found, truth in zip(chunked_topk(many, count), many.topk(count), strict=True):
            assert torch.equal(found, truth)
