"""Optimisers: the papers' updates, every parameter in one group, state by name and back."""
import pytest
import torch
from torch import nn

import weft
from weft import recipe as R
from weft.train.average import MovingAverage, mean_of
from weft.train.optimise import Optimiser

KINDS = [R.AdamW(rate=1e-2), R.Adam(rate=1e-2), R.Adafactor(rate=1e-2), R.SGD(rate=1e-2), R.Muon(rate=1e-2, other=R.AdamW(rate=1e-2))]


def small() -> weft.Model:
    return weft.build(weft.with_dropout(weft.gpt2(depth=2, width=16, heads=2, hidden=32, vocabulary=20, positions=8), 0.0))


def train(model: nn.Module, optimiser: Optimiser, steps: range) -> None:
    for step in steps:
        ids = torch.randint(20, (2, 8), generator=torch.Generator().manual_seed(step))
        model(ids).square().mean().backward()
        optimiser.step(1.0)
        optimiser.zero()


@pytest.mark.parametrize("s", KINDS, ids=lambda s: type(s).__name__)
def test_every_parameter_stands_in_exactly_one_group_and_only_matrices_decay(s: object) -> None:
    model = small()
    made = Optimiser(s, model)
    held = [p for part in made.parts for group in part.param_groups for p in group["params"]]
    assert len(held) == len({id(p) for p in held}) == len(list(model.parameters()))
    for part in made.parts:
        for group in part.param_groups:
            assert group["weight_decay"] == 0 or all(p.dim() >= 2 for p in group["params"])
    if isinstance(s, R.AdamW):
        found = {p.dim() >= 2: g["weight_decay"] for part in made.parts for g in part.param_groups for p in g["params"]}
        assert found == {True: 0.01, False: 0}


def test_muon_turns_the_matrices_inside_blocks_and_nothing_else() -> None:
    model = small()
    made = Optimiser(R.Muon(rate=1e-2, other=R.AdamW(rate=1e-2)), model)
    turned = {made.names[p] for p in made.parts[0].param_groups[0]["params"]}
    assert turned == {n for n, p in model.named_parameters() if ".blocks." in n and p.dim() == 2}
    assert "source.tokens.weight" not in turned


@pytest.mark.parametrize("s", KINDS, ids=lambda s: type(s).__name__)
def test_a_restored_optimiser_goes_on_bit_for_bit(s: object) -> None:
    whole = small()
    optimiser = Optimiser(s, whole)
    train(whole, optimiser, range(3))
    weights, state = {n: t.clone() for n, t in whole.state_dict().items()}, {n: t.clone() for n, t in optimiser.state().items()}
    train(whole, optimiser, range(3, 6))
    other = small()
    other.load_state_dict(weights)
    resumed = Optimiser(s, other)
    resumed.restore(state)
    train(other, resumed, range(3, 6))
    assert all(torch.equal(t, other.state_dict()[n]) for n, t in whole.state_dict().items())
    assert all(torch.equal(t, resumed.state()[n]) for n, t in optimiser.state().items())


def test_adamw_is_the_papers_update() -> None:
    weight = nn.Linear(3, 3, bias=False)
    w = weight.weight.detach().double().clone()
    optimiser = Optimiser(R.AdamW(rate=0.1, betas=(0.9, 0.99), eps=1e-8, decay=0.2), weight)
    m, v = torch.zeros(3, 3, dtype=torch.float64), torch.zeros(3, 3, dtype=torch.float64)
    for t in range(1, 4):
        g = torch.randn(3, 3, generator=torch.Generator().manual_seed(t))
        weight.weight.grad = g.clone()
        optimiser.step(0.5)
        g = g.double()
        m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
        w -= 0.05 * 0.2 * w + 0.05 * (m / (1 - 0.9 ** t)) / ((v / (1 - 0.99 ** t)).sqrt() + 1e-8)
    assert torch.allclose(weight.weight.double(), w, atol=1e-6)


def test_the_moving_average_follows_its_equation() -> None:
    model = nn.Linear(2, 2)
    average = MovingAverage(model, 0.9)
    mean = {n: p.detach().clone() for n, p in model.named_parameters()}
    for _ in range(3):
        with torch.no_grad():
            for p in model.parameters():
                p.add_(1.0)
        average.update()
        mean = {n: 0.9 * mean[n] + 0.1 * p.detach() for n, p in model.named_parameters()}
    assert all(torch.allclose(average.held[n], mean[n], atol=1e-6) for n in mean)


def test_the_mean_of_checkpoints_is_their_mean_and_whole_numbers_stay() -> None:
    states = [{"w": torch.tensor([float(i), 1.0]), "n": torch.tensor(i)} for i in range(4)]
    found = mean_of(states)
    assert found["w"].tolist() == [1.5, 1.0]
    assert found["n"] == 3
