"""PaLM compared with a slow reference written from the paper; transformers does not have it, and no
weights are published.
"""

import pytest
import torch
from torch import Tensor, nn

import weft

SMALL = {"depth": 2, "width": 24, "heads": 3, "head_dim": 6, "vocab_size": 31}


def normalised(x: Tensor, gain: Tensor) -> Tensor:
    return (
        gain
        * (x - x.mean(-1, keepdim=True))
        / (x.var(-1, keepdim=True, correction=0) + 1e-6).sqrt()
    )


def rotated(x: Tensor) -> Tensor:
    """Pairs (i, i + half) of each head turned by position · 10000^(-i / half), as complex
    numbers.
    """
    half = x.shape[-1] // 2
    speed = 10_000.0 ** (-torch.arange(half, dtype=torch.float64) / half)
    angle = torch.arange(x.shape[-2], dtype=torch.float64)[:, None] * speed
    turned = torch.complex(x[..., :half], x[..., half:]) * torch.polar(
        torch.ones_like(angle), angle
    )
    return torch.cat((turned.real, turned.imag), -1)


def logits_by_the_paper(w: dict[str, Tensor], tokens: Tensor) -> Tensor:
    """y = x + MLP(LayerNorm(x)) + Attention(LayerNorm(x)), one sequence, one head after another."""
    x = w["source.tokens.weight"][tokens]
    length = len(tokens)
    future = torch.ones(length, length, dtype=torch.bool).triu(1)
    for i in range(SMALL["depth"]):
        block = f"decoder.blocks.{i}"
        inner = f"{block}.attention.inner"
        read = normalised(x, w[f"{block}.attention.before.weight"])
        key = rotated(read @ w[f"{inner}.key.weight"].T)  # one head for all queries
        value = read @ w[f"{inner}.value.weight"].T
        heads = []
        for weight in w[f"{inner}.query.weight"].split(SMALL["head_dim"]):
            scores = rotated(read @ weight.T) @ key.T / SMALL["head_dim"] ** 0.5
            heads.append(scores.masked_fill(future, -torch.inf).softmax(-1) @ value)
        attended = torch.cat(heads, -1) @ w[f"{inner}.out.weight"].T
        read = normalised(x, w[f"{block}.feedforward.before.weight"])
        gate = read @ w[f"{block}.feedforward.inner.gate.weight"].T
        hidden = gate * gate.sigmoid() * (read @ w[f"{block}.feedforward.inner.up.weight"].T)
        x = x + attended + hidden @ w[f"{block}.feedforward.inner.down.weight"].T
    last = normalised(x, w["decoder.norm.weight"])
    return last @ w["source.tokens.weight"].T / SMALL["width"] ** 0.5


def test_palm_computes_what_the_paper_writes() -> None:
    model = weft.build(weft.palm(**SMALL)).double().eval()
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(SMALL["vocab_size"], (9,), generator=generator)
    for gain in (p for p in model.parameters() if p.dim() == 1):
        nn.init.uniform_(gain, 0.5, 1.5, generator=generator)
    expected = logits_by_the_paper(dict(model.state_dict()), tokens)
    assert expected.std() > 0.05
    torch.testing.assert_close(model(tokens[None])[0], expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize(("size", "billions"), [("8b", 8.63), ("62b", 62.50), ("540b", 540.35)])
def test_a_size_has_the_printed_number_of_parameters(size: str, billions: float) -> None:
    """Table 1, to its last digit but one: norms are not described to the number."""
    assert abs(weft.palm(size).parameter_count() / 1e9 - billions) < 0.01


def test_logits_start_with_unit_variance() -> None:
    """Fan-in weights, unit rows and scaled logits belong together."""
    model = weft.build(weft.palm(depth=2, width=256, heads=4, head_dim=32, vocab_size=500)).eval()
    with torch.no_grad():
        logits = model(torch.randint(500, (4, 16), generator=torch.Generator().manual_seed(0)))
    assert 0.8 < float(logits.std()) < 1.25
    maps = {n: p for n, p in model.named_parameters() if p.dim() == 2 and "blocks" in n}
    assert all(abs(p.std() * p.shape[1] ** 0.5 - 1) < 0.05 for p in maps.values())
    assert abs(model.get_parameter("source.tokens.weight").std() - 1) < 0.02
