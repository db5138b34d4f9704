"""Products in the place of several smaller ones, or of a convolution, beside what they replace."""

import pytest
import torch

import weft
from weft.nn.kernels.side_by_side import linear_side_by_side, one_product_is_quicker
from weft.nn.layers import attention
from weft.testing.model_part import random_model


def gradients(model: weft.Model, image: torch.Tensor) -> list[torch.Tensor]:
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(image).float().square().mean()
    return list(torch.autograd.grad(loss, list(model.parameters())))


def test_attention_in_bf16_trains_as_with_three_products(monkeypatch: pytest.MonkeyPatch) -> None:
    model = random_model(
        weft.vit(depth=2, width=32, heads=4, hidden=48, image_size=16, patch_size=4, classes=5)
    )
    image = torch.randn(4, 3, 16, 16)
    calls = []
    monkeypatch.setattr(
        attention,
        "linear_side_by_side",
        lambda *given: (calls.append(given), linear_side_by_side(*given))[1],
    )
    ours = gradients(model, image)
    assert len(calls) == 2
    monkeypatch.setattr(attention, "one_product_is_quicker", lambda x: False)
    slow = gradients(model, image)
    rounding = 1e-5 * torch.stack([b.norm() for b in slow]).norm()  # a key's bias has gradient 0
    for a, b in zip(ours, slow, strict=True):
        assert (a - b).norm() <= 2**-6 * b.norm() + rounding
    with torch.no_grad():
        assert not one_product_is_quicker(torch.zeros(1, dtype=torch.bfloat16))
