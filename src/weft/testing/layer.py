"""Conformance of the layers of a block: norms, feed-forward layers, attention and its patterns,
positions.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from .. import spec as S
from ..nn.kernels.attention import PatternBackend, eager_attention, sdpa_attention
from ..nn.kernels.masks import PatternMask, Positions, build_mask
from ..nn.layers.attention import AttentionLayer
from ..nn.layers.measure import build_on_meta
from ..nn.layers.roles import is_declared
from ..support.registry import implementation, named
from .layer_properties import check_properties, forward, grid_side
from .value import calling


def check_layer(part: Any, size: int, tokens: int) -> None:
    """Check the layer that a part builds for a width, or for a number of heads."""
    name = type(part).__name__
    layer = check_built(part, size, tokens).to_empty(device="cpu")
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in layer.parameters():
            p.normal_(0.5, 0.2, generator=draw)
    with calling(name):
        check_gradients(name, part, layer, size, tokens)
        check_properties(part, layer, size, tokens)
    with calling(f"{name} in bfloat16"):
        half = forward(part, layer.to(torch.bfloat16), size, tokens, "cpu", torch.bfloat16)
    assert bool(half.isfinite().all()), f"{name} is not finite in bfloat16"
    # a bias is added to scores, which the kernel casts
    assert isinstance(part, S.PositionBias) or half.dtype is torch.bfloat16, (
        f"{name} gives {half.dtype} for vectors of bfloat16; cast the result to the type of its "
        "input"
    )


def check_built(part: Any, size: int, tokens: int) -> nn.Module:
    """Check the declared parameters, roles and FLOPs of a part; return the layer, on the meta
    device.
    """
    name = type(part).__name__
    text = describe(part, size)
    assert len(text.splitlines()) == 1, f"{name}.describe gives {text!r}; one line is needed"
    with calling(f"building {name} for {size}"):
        meta = build_on_meta(part, size)
        counted = dict(part.shapes(size))
        built = shapes_of(meta)
    check_registered(name, meta)
    assert counted == built, f"{name}.shapes({size}) is {counted}, but the layer has {built}"
    check_roles(name, meta)
    assert all(p.is_meta for p in meta.parameters()), (
        f"{name} creates parameters on a fixed device; use the default device"
    )
    with FlopCounterMode(display=False) as counter, calling(f"{name} on the meta device"):
        forward(part, meta, size, tokens, "meta")
    if isinstance(part, S.Inner | S.Norm):
        declared = flops(part, size, tokens)
        assert declared == counter.get_total_flops(), (
            f"{name}.flops is {declared} for {tokens} tokens, but torch counts "
            f"{counter.get_total_flops()}"
        )
    return meta


def check_registered(name: str, layer: nn.Module) -> None:
    """Check that no parameter is in a plain list, tuple or dictionary, where it is neither trained
    nor saved.
    """
    for path, module in layer.named_modules():
        for field, container in vars(module).items():
            if field.startswith("_") or not isinstance(container, list | tuple | dict):
                continue
            items = container.values() if isinstance(container, dict) else container
            assert not any(isinstance(item, nn.Module | nn.Parameter) for item in items), (
                f"{name}: {f'{path}.{field}'.lstrip('.')} is a {type(container).__name__}, so that "
                "its parameters are not "
                "registered; use nn.ModuleList or nn.ParameterList"
            )


def shapes_of(layer: nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(p.shape) for name, p in layer.named_parameters()}


def describe(part: Any, size: int) -> str:
    if isinstance(part, S.Inner):
        return part.describe(size)
    if isinstance(part, S.PositionBias | S.InputPositions):
        return part.describe()
    return type(part).__name__


def flops(part: S.Inner | S.Norm, size: int, tokens: int) -> int:
    if isinstance(part, S.Norm):
        return part.flops(size, tokens)
    return part.flops(size, tokens, tokens, grid_side(tokens))


def check_roles(name: str, layer: nn.Module) -> None:
    """Check that every parameter has a declared role or the role of its torch class."""
    for path, module in layer.named_modules():
        names = [n for n, _ in module.named_parameters(recurse=False)]
        assert not names or is_declared(module), (
            f"{name}: {path or 'the layer'} has no role for {names[0]}; declare it with "
            "weft.with_role"
        )


def check_gradients(name: str, part: Any, layer: nn.Module, size: int, tokens: int) -> None:
    layer.train()
    y = forward(part, layer, size, tokens, "cpu")
    assert bool(y.isfinite().all()), f"{name} is not finite"
    weight = torch.randn(y.shape, generator=torch.Generator().manual_seed(2))
    if y.requires_grad:
        (y * weight).sum().backward()
    for path, p in layer.named_parameters():
        assert p.grad is not None, f"{name}: no gradient reaches {path}"
        assert bool(p.grad.isfinite().all()), f"{name}: the gradient of {path} is not finite"
        # a bias of the keys shifts all scores of a query alike, which a softmax does not see
        assert bool(p.grad.any()) or path == "key.bias", f"{name}: the gradient of {path} is 0"


def check_pattern(pattern: S.Pattern, tokens: int) -> None:
    """Check the declared properties of a pattern and its backend against its mask."""
    name = type(pattern).__name__
    mask_function = implementation(pattern)
    if issubclass(mask_function, AttentionLayer):
        return
    assert issubclass(mask_function, PatternMask), (
        f"{name}: {mask_function.__name__} must return a weft.PatternMask"
    )
    at = torch.arange(tokens)[None]
    pair = Positions(at, at, first_query_slot=0)
    rule = mask_function(pattern)
    allowed, causal = build_mask(rule, pair, triangle=False)
    seen = torch.ones(tokens, tokens, dtype=torch.bool) if allowed is None else allowed[0, 0]
    assert bool(seen.any(1).all()), f"{name}: a query attends to no key"
    ahead = bool(seen.triu(1).any())
    assert pattern.looks_ahead or not ahead, (
        f"{name}.looks_ahead is False, but a query attends to later keys"
    )
    if pattern.reach is not None:
        far = bool(seen.tril(-pattern.reach - 1).any())
        assert not far, f"{name}.reach is {pattern.reach}, but it attends to keys further back"
    if rule.backend is not None:
        check_backend(name, rule, pair, allowed, causal)


def check_backend(
    name: str, rule: PatternMask, positions: Positions, allowed: Tensor | None, causal: bool
) -> None:
    """Compare a backend with attention over the full mask in float64."""
    assert rule.backend is not None
    split = named(PatternBackend, rule.backend)(rule, positions, False)
    if split is None:
        return
    draw = torch.Generator().manual_seed(3)
    tokens = positions.query_BL.shape[1]
    q, k, v = (torch.randn(2, 4, tokens, 8, generator=draw) for _ in range(3))
    options: dict[str, Any] = {"causal": causal, "scale": None, "dropout": 0.0}
    slow = eager_attention(q.double(), k.double(), v.double(), allowed, **options)
    fast = split(sdpa_attention)(q, k, v, None, **options)
    assert fast.shape == slow.shape, f"{name}: backend {rule.backend!r} gives {tuple(fast.shape)}"
    worst = float((fast - slow).abs().max())
    assert worst < 1e-4, f"{name}: backend {rule.backend!r} differs from the mask by {worst:.2g}"
