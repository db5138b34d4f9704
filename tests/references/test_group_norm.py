"""The group norm of padded images is that of each image alone."""

import pytest
import torch
from torch import Tensor, nn

from weft.nn.layers.images.resnet import GroupNormLayer

SIZES = [(5, 7), (6, 3), (2, 7)]  # rows and columns of each image


def padded(mean: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Images of unequal size, with numbers at padding that must not matter, and their mask."""
    g = torch.Generator().manual_seed(0)
    x = mean + torch.randn(len(SIZES), 8, 6, 7, generator=g, dtype=torch.float64)
    mask = torch.zeros(len(SIZES), 1, 6, 7, dtype=torch.bool)
    for i, (rows, columns) in enumerate(SIZES):
        mask[i, :, :rows, :columns] = True
    x = x.to(dtype).contiguous(memory_format=torch.channels_last).requires_grad_()
    return x, mask


def parts(x: Tensor) -> list[Tensor]:
    """What is visible of each image."""
    return [
        image[None, :, :rows, :columns] for image, (rows, columns) in zip(x, SIZES, strict=True)
    ]


def affine(norm: nn.GroupNorm) -> nn.GroupNorm:
    with torch.no_grad():
        norm.weight.copy_(torch.linspace(0.5, 2, 8))
        norm.bias.copy_(torch.linspace(-1, 1, 8))
    return norm


@pytest.mark.parametrize(
    ("dtype", "mean", "tolerance"),
    [(torch.float64, 0.0, 1e-12), (torch.float64, 10.0, 1e-10), (torch.float32, 3.0, 1e-5)],
)
def test_masked_group_norm_equals_group_norm_per_image(
    dtype: torch.dtype, mean: float, tolerance: float
) -> None:
    ours, theirs = (affine(kind(2, 8).to(dtype)) for kind in (GroupNormLayer, nn.GroupNorm))
    x, mask = padded(mean, dtype)
    found = parts(ours(x, mask))
    other = x.detach().clone().requires_grad_()
    expected = [theirs(image) for image in parts(other)]
    for mine, true in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, true, atol=tolerance, rtol=tolerance)
    for outputs in (found, expected):
        torch.cat([y.flatten() for y in outputs]).sin().sum().backward()
    pairs = [(x.grad, other.grad), (ours.weight.grad, theirs.weight.grad)]
    for mine, true in (*pairs, (ours.bias.grad, theirs.bias.grad)):
        torch.testing.assert_close(mine, true, atol=10 * tolerance, rtol=10 * tolerance)


def test_masked_group_norm_of_half_precision_has_the_variance_of_float32() -> None:
    """A variance from sums in bfloat16 would be noise where the mean is large."""
    norm = GroupNormLayer(2, 8)
    x, mask = padded(20.0, torch.float32)
    half = x.detach().bfloat16()
    exact = norm(half.float(), mask)
    found = norm.bfloat16()(half, mask).float()
    error = (torch.cat([y.flatten() for y in parts(found - exact)])).abs().max()
    assert error < 0.25  # half a unit of bfloat16 at 20 deviations, which addcmul has to round
