"""Norms and activations that are written out for the CPU, beside torch's own."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from weft.nn.kernels.gelu import gelu_tanh
from weft.nn.layers.activations import ACTIVATIONS
from weft.nn.layers.norms import RMSNormLayer

SHAPES = [(0,), (1,), (7, 5), (3, 50_001)]


def slopes(f: object, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    x = x.detach().requires_grad_()
    y = f(x)
    return y.detach().double(), torch.autograd.grad(y.sum(), x)[0].double()


@pytest.mark.parametrize("shape", SHAPES)
def test_gelu_by_tanh_and_its_slope_are_torchs_to_1e6_in_fp32(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    x = torch.randn(shape) * 3
    for ours, theirs in zip(
        slopes(gelu_tanh, x),
        slopes(lambda x: F.gelu(x, approximate="tanh"), x.double()),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-6)


def test_gelu_by_tanh_of_every_bf16_number_is_rounded_once() -> None:
    """Nothing but the last rounding: half of 2^-7, relative; below 1e-6 absolute."""
    every = (
        torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    )
    every = every[every.abs() < 1e4]
    found, true = (
        slopes(f, x)
        for f, x in (
            (ACTIVATIONS["gelu_tanh"], every),
            (lambda x: F.gelu(x, approximate="tanh"), every.double()),
        )
    )
    for ours, theirs in zip(found, true, strict=True):
        torch.testing.assert_close(ours, theirs, atol=2e-6, rtol=1.01 * 2**-8)


def test_gelu_of_a_transposed_tensor_is_that_of_its_copy() -> None:
    x = torch.randn(5, 7).bfloat16()
    for ours, theirs in zip(
        slopes(gelu_tanh, x.T), slopes(gelu_tanh, x.T.contiguous()), strict=True
    ):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("eps", [None, 1e-6, 0.1])
@pytest.mark.parametrize("shape", [(8,), (5, 8), (2, 3, 8)])
def test_root_mean_square_norm_and_its_gradients_are_torchs_to_1e6(
    shape: tuple[int, ...], eps: float | None
) -> None:
    torch.manual_seed(1)
    x = torch.randn(shape) * 4
    w = torch.randn(8)
    g = torch.randn(shape)
    results = []
    for kind, dtype in ((RMSNormLayer, torch.float32), (nn.RMSNorm, torch.float64)):
        norm = kind(
            8, eps=torch.finfo(torch.float32).eps if eps is None and dtype == torch.float64 else eps
        ).to(dtype)
        norm.weight.data.copy_(w)
        x_ = x.to(dtype).requires_grad_()
        y = norm(x_)
        results.append(
            [
                t.double()
                for t in (y.detach(), *torch.autograd.grad(y, (x_, norm.weight), g.to(dtype)))
            ]
        )
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-6)


def test_root_mean_square_norm_is_quick_only_where_there_is_a_backward() -> None:
    norm = RMSNormLayer(4)
    x = torch.randn(3, 4)
    assert "RMSNormFunction" in type(norm(x.requires_grad_()).grad_fn).__name__
    with torch.no_grad():
        assert norm(x).grad_fn is None
