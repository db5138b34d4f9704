"""Experts: grouped, one by one, and all on everything give the same; the routers' losses are what
their papers say.
"""

import copy

import pytest
import torch
import torch.nn.functional as F

from weft import spec as S
from weft.nn.layers import mixture_of_experts


def layer(
    expert: object, chosen: int = 2, gates: str = "top_k"
) -> mixture_of_experts.MixtureOfExpertsLayer:
    torch.manual_seed(0)
    made = mixture_of_experts.MixtureOfExpertsLayer(
        S.MixtureOfExperts(experts=4, top_k=chosen, expert=expert, softmax_over=gates), 8
    )
    with torch.no_grad():
        for p in made.parameters():
            p.normal_(0, 0.5)
    return made


def on_everything(m: mixture_of_experts.MixtureOfExpertsLayer, x: torch.Tensor) -> torch.Tensor:
    """Every expert on every token, then the gates."""
    gates, chosen = m.route(m.router(x))

    def apply(bank: mixture_of_experts.ExpertLinear, i: int, t: torch.Tensor) -> torch.Tensor:
        return F.linear(t, bank.weight[i], None if bank.bias is None else bank.bias[i])

    outputs = []
    for i in range(m.s.experts):
        h = m.activation(apply(m.up if m.gate is None else m.gate, i, x))
        outputs.append(apply(m.down, i, h if m.gate is None else h * apply(m.up, i, x)))
    picked = torch.stack(outputs, -2).gather(
        -2, chosen[..., None].expand(*chosen.shape, x.shape[-1])
    )
    return (picked * gates[..., None]).sum(-2)


@pytest.mark.parametrize("gates", ["top_k", "all"])
@pytest.mark.parametrize(
    "expert", [S.GatedMLP(hidden=16, bias=False), S.GatedMLP(hidden=16), S.MLP(hidden=16)], ids=repr
)
def test_sorted_tokens_give_what_every_expert_on_every_token_gives(
    expert: object, gates: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    m = layer(expert, gates=gates)
    x = torch.randn(2, 5, 8)
    results = []
    for can in (True, False):
        monkeypatch.setattr(mixture_of_experts, "can_use_grouped_matmul", lambda *_, can=can: can)
        y = m(x)
        results.append((y, torch.autograd.grad(y.square().sum(), list(m.parameters()))))
    slow = on_everything(m, x)
    truth = torch.autograd.grad(slow.square().sum(), list(m.parameters()))
    for y, grads in results:
        assert (y - slow).abs().max() <= 1e-5
        for a, b in zip(grads, truth, strict=True):
            assert (a - b).abs().max() <= 1e-5 * b.abs().max().clamp(min=1)


def by_hand(
    m: mixture_of_experts.MixtureOfExpertsLayer, document_BL: torch.Tensor
) -> tuple[float, float]:
    """Switch's equations 4 to 6 for each sequence alone, in loops, times its tokens; and ST-MoE's
    equation 5.
    """
    balance = z = 0.0
    for row, numbers in zip(m.score_BLE.detach(), document_BL.tolist(), strict=True):
        for number in set(numbers) - {0}:
            tokens = [row[i] for i, n in enumerate(numbers) if n == number]
            share = [0.0] * m.s.experts
            probability = [0.0] * m.s.experts
            for score in tokens:
                z += float(score.exp().sum().log()) ** 2
                for e in score.argsort(descending=True)[: m.s.top_k].tolist():
                    share[e] += 1 / m.s.top_k / len(tokens)
                for e, p in enumerate(score.softmax(0).tolist()):
                    probability[e] += p / len(tokens)
            balance += (
                len(tokens)
                * m.s.experts
                * sum(f * p for f, p in zip(share, probability, strict=True))
            )
    return balance, z


@pytest.mark.parametrize(
    ("name", "sequences"),
    [
        (None, [[1] * 6] * 2),
        ("attention_mask_BL", [[True] * 6, [True] * 2 + [False] * 4]),
        ("document_ids_BL", [[1, 1, 1, 2, 2, 3], [1, 2, 2, 2, 0, 0]]),
    ],
    ids=str,
)
def test_the_routers_losses_are_those_of_each_sequence_added_up(
    name: str | None, sequences: list[list[int]]
) -> None:
    m = layer(S.MLP(hidden=16)).double()
    x = torch.randn(2, 6, 8, dtype=torch.float64)
    m(x)
    sequence_BL = torch.tensor(sequences)
    found = mixture_of_experts.router_losses(m, **({name: sequence_BL} if name else {}))
    balance, z = by_hand(m, sequence_BL.long())
    assert float(found.load_balance.detach()) == pytest.approx(balance, rel=1e-12)
    assert float(found.z.detach()) == pytest.approx(z, rel=1e-12)
    assert float(found.load_E.sum()) == 2 * sequence_BL.count_nonzero()
    for term in (found.load_balance, found.z):
        m.zero_grad()
        term.backward(retain_graph=True)
        assert m.router.weight.grad.abs().max() > 0


def test_a_model_can_be_copied_after_a_training_forward() -> None:
    m = layer(S.MLP(hidden=16))
    x = torch.randn(1, 3, 8)
    m(x)
    assert torch.equal(copy.deepcopy(m)(x), m(x))
