"""Experts: grouped, one by one, and all on everything give the same; balance tells the truth."""
import copy

import pytest
import torch
import torch.nn.functional as F

from weft import spec as S
from weft.layers import experts as E


def layer(expert: object, chosen: int = 2, gates: str = "chosen") -> E.Experts:
    torch.manual_seed(0)
    made = E.Experts(S.Experts(count=4, chosen=chosen, expert=expert, gates=gates), 8)
    with torch.no_grad():
        for p in made.parameters():
            p.normal_(0, 0.5)
    return made


def on_everything(m: E.Experts, x: torch.Tensor) -> torch.Tensor:
    """Every expert on every token, then the gates."""
    gates, chosen = m.choose(m.router(x))
    def apply(bank: E.Bank, i: int, t: torch.Tensor) -> torch.Tensor:
        return F.linear(t, bank.weight[i], None if bank.bias is None else bank.bias[i])
    outputs = []
    for i in range(m.s.count):
        h = m.activation(apply(m.up if m.gate is None else m.gate, i, x))
        outputs.append(apply(m.down, i, h if m.gate is None else h * apply(m.up, i, x)))
    picked = torch.stack(outputs, -2).gather(-2, chosen[..., None].expand(*chosen.shape, x.shape[-1]))
    return (picked * gates[..., None]).sum(-2)


@pytest.mark.parametrize("gates", ["chosen", "all"])
@pytest.mark.parametrize("expert", [S.Gated(hidden=16, bias=False), S.Gated(hidden=16), S.Dense(hidden=16)], ids=repr)
def test_sorted_tokens_give_what_every_expert_on_every_token_gives(expert: object, gates: str, monkeypatch: pytest.MonkeyPatch) -> None:
    m, x = layer(expert, gates=gates), torch.randn(2, 5, 8)
    results = []
    for can in (True, False):
        monkeypatch.setattr(E, "can_group", lambda *_, can=can: can)
        y = m(x)
        results.append((y, torch.autograd.grad(y.square().sum(), list(m.parameters()))))
    slow = on_everything(m, x)
    truth = torch.autograd.grad(slow.square().sum(), list(m.parameters()))
    for y, grads in results:
        assert (y - slow).abs().max() <= 1e-5
        for a, b in zip(grads, truth, strict=True):
            assert (a - b).abs().max() <= 1e-5 * b.abs().max().clamp(min=1)


def test_balance_is_one_for_even_work_and_grows_to_the_count_when_one_does_all() -> None:
    m = layer(S.Dense(hidden=16), chosen=1, gates="all")
    m.score_BLE = torch.eye(4).repeat(3, 1)[None] * 50
    assert float(E.balance(m)) == pytest.approx(1.0, abs=1e-5)
    m.score_BLE = torch.tensor([50.0, 0, 0, 0]).expand(1, 12, 4)
    assert float(E.balance(m)) == pytest.approx(4.0, abs=1e-5)


def test_balance_does_not_count_padding_and_teaches_the_router() -> None:
    m, x = layer(S.Dense(hidden=16)), torch.randn(2, 6, 8)
    keep = torch.tensor([[True] * 6, [True] * 2 + [False] * 4])
    m(x)
    kept = E.balance(m, keep)
    m(torch.cat((x[0], x[1, :2]))[None])
    assert float(kept.detach()) == pytest.approx(float(E.balance(m).detach()), abs=1e-6)
    m(x)
    E.balance(m, keep).backward()
    assert m.router.weight.grad.abs().max() > 0


def test_without_experts_there_is_no_balance() -> None:
    assert E.balance(torch.nn.Linear(2, 2)) is None


def test_a_model_can_be_copied_after_a_training_forward() -> None:
    m, x = layer(S.Dense(hidden=16)), torch.randn(1, 3, 8)
    m(x)
    assert torch.equal(copy.deepcopy(m)(x), m(x))
