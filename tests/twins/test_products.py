"""Products in the place of several smaller ones, or of a convolution, beside what they replace."""

import pytest
import torch
import torch.nn.functional as F

import weft
from weft.kernels.side_by_side import linear_side_by_side, one_product_is_quicker
from weft.layers import attention
from weft.layers.embedding import PatchProjection
from weft.testing.model_part import random_model


@pytest.mark.parametrize(("rows", "columns", "channels"), [(8, 8, 3), (4, 12, 1), (16, 4, 2)])
def test_patches_times_the_weights_are_the_convolution(
    rows: int, columns: int, channels: int
) -> None:
    torch.manual_seed(0)
    projection = PatchProjection(channels, 6, 4, stride=4).double()
    image = torch.randn(2, channels, rows, columns, dtype=torch.float64, requires_grad=True)
    results = []
    for found in (
        projection(image),
        F.conv2d(image, projection.weight, projection.bias, stride=4),
    ):
        gradients = torch.autograd.grad(found.sin().sum(), (image, *projection.parameters()))
        results.append((found, *gradients))
    for ours, slow in zip(*results, strict=True):
        torch.testing.assert_close(ours, slow, rtol=0, atol=1e-12)


@pytest.mark.parametrize("bias", [True, False])
def test_maps_side_by_side_are_the_maps(bias: bool) -> None:
    torch.manual_seed(0)
    maps = [torch.nn.Linear(6, n, bias=bias).double() for n in (8, 4, 2)]
    weights = [p for m in maps for p in m.parameters()]
    x = torch.randn(2, 5, 6, dtype=torch.float64, requires_grad=True)
    results = []
    for found in (linear_side_by_side(x, maps), [m(x) for m in maps]):
        total = sum((part.sin().sum() for part in found), torch.zeros(()))
        results.append((*found, *torch.autograd.grad(total, (x, *weights))))
    for ours, slow in zip(*results, strict=True):
        torch.testing.assert_close(ours, slow, rtol=0, atol=1e-12)


def gradients(model: weft.Model, image: torch.Tensor) -> list[torch.Tensor]:
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(image).float().square().mean()
    return list(torch.autograd.grad(loss, list(model.parameters())))


def test_attention_in_bf16_trains_as_with_three_products(monkeypatch: pytest.MonkeyPatch) -> None:
    model = random_model(
        weft.vit(depth=2, width=32, heads=4, hidden=48, image_size=16, patch_size=4, classes=5)
    )
    image, calls = torch.randn(4, 3, 16, 16), []
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
