"""How far states differ: known ranks and shares, a direct computation with numpy, and the states
that are gathered.
"""

import numpy as np
import pytest
import torch

import weft
from tests.golden.adapter import family_model
from tests.golden.configs import config_of
from weft import observe
from weft.interop.huggingface.verify import example, run_ours
from weft.testing.model_part import random_model


def by_numpy(states: torch.Tensor) -> tuple[float, float]:
    x_TD = states.double().numpy()
    variance_D = np.linalg.eigvalsh(np.cov(x_TD.T, bias=True)).clip(0)
    share_D = variance_D[variance_D > 0] / variance_D.sum()
    common = (x_TD.mean(0) ** 2).sum() / (x_TD**2).sum(1).mean()
    return float(np.exp(-(share_D * np.log(share_D)).sum())), float(common)


@pytest.mark.parametrize("rank", [1, 3, 8])
def test_the_effective_rank_of_equal_variances_is_their_number(rank: int) -> None:
    directions_RD = torch.linalg.qr(torch.randn(16, rank, dtype=torch.float64))[0].T
    states = torch.cat((directions_RD, -directions_RD)) * 3
    found = observe.spread(states)
    assert found.effective_rank == pytest.approx(rank, rel=1e-9)
    assert found.common_share == pytest.approx(0, abs=1e-12)
    # One common vector as large as each of the states: half of the mean square.
    common_D = torch.linalg.qr(torch.cat((directions_RD, torch.randn(1, 16).double())).T)[0][:, -1]
    moved = observe.spread(states + 3 * common_D)
    assert moved.effective_rank == pytest.approx(rank, rel=1e-9)
    assert moved.common_share == pytest.approx(0.5, rel=1e-9)


def test_spread_is_what_numpy_computes_from_the_covariance() -> None:
    generator = torch.Generator().manual_seed(0)
    scale_D = torch.linspace(0.1, 2, 12)
    states = torch.randn(5, 40, 12, generator=generator) * scale_D + 0.7
    found = observe.spread(states)
    assert tuple(found) == pytest.approx(by_numpy(states.flatten(0, 1)), rel=1e-6)
    assert 1 < found.effective_rank < 12


def test_equal_vectors_have_no_direction_and_are_all_common() -> None:
    vector_D = torch.randn(7, generator=torch.Generator().manual_seed(0))
    assert observe.spread(vector_D.expand(2, 9, 7)) == (0.0, 1.0)
    assert observe.spread(torch.zeros(9, 7)) == (0.0, 0.0)
    with pytest.raises(ValueError, match=r"\(1, 7\)"):
        observe.spread(vector_D[None])


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_states_that_are_not_finite_have_no_spread(value: float) -> None:
    states = torch.randn(4, 7)
    states[1, 2] = value
    with pytest.raises(ValueError, match="1 of 4 states hold NaN or infinity"):
        observe.spread(states)


@torch.no_grad()
@pytest.mark.parametrize("name", ["bert", "gpt2", "t5", "swin"])
def test_output_states_are_those_of_the_encoder_or_of_a_decoder_alone(name: str) -> None:
    model = family_model(name, config_of(name))
    assert isinstance(model, weft.Model)
    model = random_model(model.spec).eval()
    batch = example(model.spec)
    plain = run_ours(model, batch)
    with observe.output_states(model) as states:
        seen = run_ours(model, batch)
    assert all(torch.equal(seen[output], tensor) for output, tensor in plain.items())
    with observe.output_states(model, limit=3) as few:
        run_ours(model, batch)
    assert torch.equal(torch.cat(few), torch.cat(states)[:3])
    run_ours(model, batch)
    assert sum(map(len, few)) == 3


@torch.no_grad()
def test_output_states_leave_padding_out() -> None:
    model = weft.build(weft.bert("tiny", vocab_size=50, positions=16)).eval()
    tokens_BL = torch.arange(16).view(2, 8)
    mask_BL = torch.ones(2, 8, dtype=torch.bool)
    mask_BL[1, 5:] = False
    with observe.output_states(model) as states:
        model(tokens_BL, attention_mask=mask_BL)
    encoded = model.encode(model.embed(tokens_BL, attention_mask=mask_BL))
    assert torch.equal(torch.cat(states), encoded.x_BLD[mask_BL])
