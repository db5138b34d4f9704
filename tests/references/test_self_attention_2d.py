"""SAGAN's block beside its equations, and in a convolutional network."""

from pathlib import Path
from runpy import run_path

import pytest
import torch

import weft
from weft.nn.layers.roles import check_roles

ROOT = Path(__file__).parents[2]


def test_the_block_is_the_papers_equations_cell_by_cell() -> None:
    torch.manual_seed(0)
    block = weft.SelfAttention2d(16, reduction=4).double()
    torch.nn.init.constant_(block.gamma, 0.7)
    x = torch.randn(2, 16, 3, 5, dtype=torch.float64)
    f, g, h, v = (
        getattr(block.attention, name).weight for name in ("key", "query", "value", "out")
    )
    y = block(x)
    for b in range(2):
        cells = x[b].flatten(1)  # (C, N)
        s = (f @ cells).T @ (g @ cells)  # s_ij = f(x_i)ᵀ g(x_j)
        beta = s.exp() / s.exp().sum(0, keepdim=True)  # over i, for each j
        o = v @ ((h @ cells) @ beta)
        assert torch.allclose(y[b].flatten(1), 0.7 * o + cells, atol=1e-12, rtol=0)


def test_a_new_block_changes_nothing_and_learns_to() -> None:
    block = weft.SelfAttention2d(8)
    x = torch.randn(1, 8, 4, 4)
    y = block(x)
    assert torch.equal(y, x)
    (y * torch.randn_like(y)).sum().backward()
    assert float(block.gamma.grad) != 0
    check_roles(block)


def test_a_reduction_that_does_not_divide_the_channels_is_refused() -> None:
    with pytest.raises(ValueError, match="does not divide 12 channels"):
        weft.SelfAttention2d(12)


def test_the_example_learns_with_and_without_the_block() -> None:
    example = run_path(str(ROOT / "examples/self_attention_cnn.py"))
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(10, (400,), generator=generator)
    images = 0.3 * torch.rand(400, 1, 28, 28, generator=generator)
    for image, label in zip(images, labels.tolist(), strict=True):  # a bright bar per class
        image[0, 2 * label : 2 * label + 8] += 0.07 * label
    results = example["main"]((images, labels), (images, labels), steps=60, seeds=1)
    assert list(results) == ["neither", "residual block", "self-attention"]
    assert all(accuracy > 0.3 for (accuracy,) in results.values())
