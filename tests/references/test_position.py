"""Position encodings compared with slow references."""

import math

import pytest
import torch

from weft import spec as S
from weft.nn.kernels.masks import Positions
from weft.nn.layers.positions import (
    ALiBiLayer,
    RelativeBiasLayer,
    rope_angles,
    sinusoidal_positions,
)

FAR = torch.arange(16_000, 16_384)[None]


@pytest.mark.parametrize("stretch", [None, S.RoPEScaling(factor=8.0)])
@pytest.mark.parametrize("theta", [10_000.0, 500_000.0])
def test_rotary_tables_in_bf16_are_within_one_ulp_of_fp64_at_position_16k(
    theta: float, stretch: S.RoPEScaling | None
) -> None:
    rotary = S.RoPE(theta=theta, scaling=stretch)
    exact = rope_angles(rotary, FAR, 64, torch.float64)
    for found, true in zip(rope_angles(rotary, FAR, 64, torch.bfloat16), exact, strict=True):
        ulp = 2.0 ** (true.abs().clamp(min=2.0**-126).log2().floor() - 7)
        assert ((found.double() - true).abs() <= ulp).all()
    by_hand = math.cos(16_383 * theta ** -(3 / 32))
    if stretch is None:
        assert abs(float(exact[0][0, 0, -1, 3]) - by_hand) < 1e-9


def test_a_shifted_sinusoid_is_a_linear_function_of_the_first() -> None:
    """Vaswani et al. 2017, section 3.5 (spec B1)."""
    table = sinusoidal_positions(torch.arange(50)[None], 16, "interleaved", torch.float64)[0]
    rate = 10_000.0 ** -(torch.arange(0, 16, 2, dtype=torch.float64) / 16)
    turns = [
        torch.tensor([[c, -s], [s, c]], dtype=torch.float64)
        for c, s in zip((5 * rate).cos().tolist(), (5 * rate).sin().tolist(), strict=True)
    ]
    assert torch.allclose(table[:45] @ torch.block_diag(*turns), table[5:50], atol=1e-12)
    halves = sinusoidal_positions(torch.arange(50)[None], 16, "halves", torch.float64)[0]
    assert torch.equal(torch.cat((table[:, 0::2], table[:, 1::2]), 1), halves)


@pytest.mark.parametrize("sided", [True, False])
def test_buckets_slid_along_diagonals_are_buckets_looked_up_one_by_one(sided: bool) -> None:
    layer = RelativeBiasLayer(S.RelativeBias(buckets=8, max_distance=20, bidirectional=sided), 3)
    with torch.no_grad():
        layer.weight.normal_()
    query = torch.arange(30)[None]
    key = torch.arange(41)[None]
    results = []
    for first in (0, None):
        layer.weight.grad = None
        bias = layer(Positions(query, key, first_query_slot=first))
        bias.square().sum().backward()
        results.append((bias.detach(), layer.weight.grad))
    assert torch.equal(results[0][0], results[1][0])
    assert torch.allclose(results[0][1], results[1][1])


def test_alibi_slopes_are_those_of_the_paper_also_for_odd_head_counts() -> None:
    assert ALiBiLayer(S.ALiBi(), 8).slopes == [2.0 ** -(i + 1) for i in range(8)]
    assert ALiBiLayer(S.ALiBi(), 6).slopes == [0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125]
