"""Checks of layer outputs: shape, type, determinism and dependence on other tokens."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from .. import spec as S
from ..nn.kernels.masks import Positions, build_mask, pattern_mask
from ..nn.layers.attention import AttentionContext

TOLERANCE = 1e-4  # of float32, relative to the largest number


def grid_side(tokens: int) -> int:
    return int(tokens**0.5)


def forward(
    part: Any,
    layer: nn.Module,
    size: int,
    tokens: int,
    device: str,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Call a layer like a model does, on fixed random vectors."""
    x_BLD = torch.empty(2, tokens, size, device=device, dtype=dtype)
    if device == "meta":
        # FLOPs are counted for one sequence
        return call(part, layer, x_BLD if isinstance(part, S.InputPositions) else x_BLD[:1])
    return call(part, layer, random_like(x_BLD))


def random_like(x_BLD: Tensor) -> Tensor:
    return x_BLD.copy_(torch.randn(x_BLD.shape, generator=torch.Generator().manual_seed(1)))


def call(part: Any, layer: nn.Module, x_BLD: Tensor) -> Tensor:
    """Call a layer on vectors at the positions 0, 1, 2, …"""
    tokens = x_BLD.shape[1]
    at_1L = torch.arange(tokens, device=x_BLD.device)[None]
    positions = Positions(at_1L, at_1L, first_query_slot=0)
    if isinstance(part, S.PositionBias):
        output = layer(positions)
    elif isinstance(part, S.Attention):
        mask, causal = build_mask(
            pattern_mask(part.pattern), positions, triangle=part.position_bias is None
        )
        side = grid_side(tokens)
        grid = (side, side) if side**2 == tokens else None
        output = layer(x_BLD, None, AttentionContext(positions, mask, causal, grid=grid))
    elif isinstance(part, S.InputPositions):
        output = layer(None, x_BLD)
    else:
        output = layer(x_BLD)
    assert isinstance(output, Tensor), (
        f"{type(part).__name__} gives {type(output).__name__}, not a tensor"
    )
    return output


def check_properties(part: Any, layer: nn.Module, size: int, tokens: int) -> None:
    """Check that the output in eval mode has the right shape, is deterministic, and depends only on
    the inputs that the part's base class allows.
    """
    name = type(part).__name__
    layer.eval()
    x_BLD = random_like(torch.empty(2, tokens, size))
    before_BLD = x_BLD.clone()
    with torch.no_grad():
        once = call(part, layer, x_BLD)
        assert torch.equal(x_BLD, before_BLD), f"{name} changes its input in place"
        again = call(part, layer, x_BLD)
        assert torch.equal(once, again), f"{name} is not deterministic in eval mode"
        if isinstance(part, S.PositionBias):
            check_bias(name, layer, once, size, tokens)
            return
        if isinstance(part, S.InputPositions):
            check_input_positions(name, layer, once, x_BLD)
            return
        check_vectors(name, part, layer, once, x_BLD)
    check_zeros(name, part, layer, x_BLD)


def check_vectors(name: str, part: Any, layer: nn.Module, whole: Tensor, x_BLD: Tensor) -> None:
    """Check the output vectors of a norm, a feed-forward layer or an attention for `x_BLD`, in eval
    mode.
    """
    check_shape(name, whole, x_BLD)
    if isinstance(part, S.Norm | S.FeedForwardSpec):
        check_each_token_alone(name, layer, x_BLD)
    else:
        alone = call(part, layer, x_BLD[1:])
        assert_same(alone, whole[1:], f"{name}: a row depends on the others of its batch")
    if isinstance(part, S.Norm):
        # also in training mode, where a norm may use other statistics
        check_each_token_alone(name, layer.train(), x_BLD)
        layer.eval()
    if isinstance(part, S.Attention) and not part.pattern.looks_ahead:
        check_causal(name, lambda x: call(part, layer, x), x_BLD)


def assert_same(one: Tensor, other: Tensor, message: str) -> None:
    """Compare two results of the same computation in a different order."""
    scale = 1 + float(other.abs().max())
    worst = float((one - other).abs().max()) if one.shape == other.shape else float("nan")
    assert worst <= TOLERANCE * scale, f"{message} (by {worst:.2g})"


def check_shape(name: str, output: Tensor, x_BLD: Tensor) -> None:
    assert output.shape == x_BLD.shape, (
        f"{name} gives the shape {tuple(output.shape)} for vectors of {tuple(x_BLD.shape)}; they "
        "must be the same"
    )


def check_each_token_alone(name: str, layer: nn.Module, x_BLD: Tensor) -> None:
    """Check that a norm or feed-forward layer computes each vector independently of other tokens
    and rows.
    """
    whole = layer(x_BLD)
    check_shape(name, whole, x_BLD)
    tokens = x_BLD.shape[1]
    for i in {0, tokens // 2, tokens - 1}:
        one = layer(x_BLD[1:, i : i + 1])
        assert_same(
            one, whole[1:, i : i + 1], f"{name}: the vector of a token depends on other tokens"
        )


def check_causal(name: str, run: Callable[[Tensor], Tensor], x_BLD: Tensor) -> None:
    changed_BLD = x_BLD.clone()
    changed_BLD[:, -1] += 1
    assert_same(
        run(changed_BLD)[:, :-1],
        run(x_BLD)[:, :-1],
        f"{name}: a later token changes earlier ones, but its pattern does not look ahead",
    )


def check_zeros(name: str, part: Any, layer: nn.Module, x_BLD: Tensor) -> None:
    """Check that a vector of zeros, as in padding, gives finite outputs and gradients."""
    zeros_BLD = torch.zeros_like(x_BLD, requires_grad=True)
    y = call(part, layer, zeros_BLD)
    assert bool(y.isfinite().all()), f"{name} is not finite for a vector of zeros; add an eps"
    (gradient,) = torch.autograd.grad(y.sum(), zeros_BLD)
    assert bool(gradient.isfinite().all()), (
        f"{name}: the gradient is not finite for a vector of zeros; add the eps inside the "
        f"square root"
    )


def check_bias(name: str, layer: nn.Module, whole: Tensor, heads: int, tokens: int) -> None:
    """Check that a bias has one number per head, query and key, determined by their positions."""
    wanted = (1, heads, tokens, tokens)
    assert whole.shape == wanted, (
        f"{name} gives the shape {tuple(whole.shape)} for {tokens} queries and keys; give (batch "
        f"or 1, heads, queries, keys), {wanted}"
    )
    at_L = torch.arange(tokens)
    last_1 = at_L[-1:]
    one = layer(Positions(last_1[None], at_L[None], first_query_slot=tokens - 1))
    assert_same(one, whole[:, :, last_1], f"{name}: the last query alone, as with a cache, differs")
    # padding on the left repeats the first position
    padded_L = (at_L - 3).clamp(min=0)
    padded = layer(Positions(padded_L[None], padded_L[None]))
    assert_same(
        padded,
        whole[:, :, padded_L][..., padded_L],
        f"{name} counts the slots of the tensor; use the positions that it is given",
    )


def check_input_positions(name: str, layer: nn.Module, whole: Tensor, x_BLD: Tensor) -> None:
    """Check that input positions give one vector per token, determined by its position."""
    B, L, D = x_BLD.shape
    assert whole.shape in ((L, D), (1, L, D), (B, L, D)), (
        f"{name} gives the shape {tuple(whole.shape)} for vectors of {(B, L, D)}; give (tokens, "
        "width)"
    )
    position_1L = (torch.arange(L) - 3).clamp(min=0)[None]
    padded = layer(position_1L, x_BLD)
    assert_same(
        padded.expand(B, L, D),
        whole.expand(B, L, D)[:, position_1L[0]],
        f"{name} counts the slots of the tensor; use the positions that it is given",
    )
