"""Parameters and FLOPs of a part, measured by building it on the meta device without allocating
memory.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

from ...support.registry import implementation
from .sequence import HiddenStates


class SkipTorchInit(TorchFunctionMode):
    """Context that skips the initialisation of PyTorch's layers; `weft.nn.initialisation` does it
    once there is memory.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__module__", None) == "torch.nn.init":
            return (kwargs or {}).get("tensor", args[0] if args else None)
        return func(*args, **(kwargs or {}))


def build_on_meta(part: Any, *arguments: Any) -> nn.Module:
    """Build the layer of a part with `arguments`, on the meta device."""
    with torch.device("meta"), SkipTorchInit():
        layer: nn.Module = implementation(part)(part, *arguments)
    return layer


@lru_cache(maxsize=1024)
def shapes_of(part: Any, arguments: tuple[Any, ...]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    layer = build_on_meta(part, *arguments)
    return tuple((name, tuple(p.shape)) for name, p in layer.named_parameters())


def parameter_shapes(part: Any, *arguments: Any) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield from shapes_of(part, arguments)


@lru_cache(maxsize=1024)
def image_flops(part: Any, channels: int, width: int, side: int) -> int:
    """Return the FLOPs of a layer on one square image, as PyTorch's counter counts them."""
    layer = build_on_meta(part, channels, width)
    with FlopCounterMode(display=False) as counter:
        layer(torch.empty(1, channels, side, side, device="meta"))
    return int(counter.get_total_flops())


@lru_cache(maxsize=1024)
def forward_flops(part: Any, width: int, tokens: int) -> int:
    """Return the FLOPs of a layer on one vector per token, as PyTorch's counter counts them."""
    layer = build_on_meta(part, width)
    with FlopCounterMode(display=False) as counter:
        layer(torch.empty(1, tokens, width, device="meta"))
    return int(counter.get_total_flops())


@lru_cache(maxsize=1024)
def stack_flops(part: Any, width: int, tokens: int, memory: int) -> int:
    """Return the FLOPs of a stack outside its blocks, as PyTorch's counter counts them; `memory` is
    the number of encoder outputs.
    """
    layer = build_on_meta(part, width, ())
    sequences = [
        HiddenStates(torch.empty(1, count, width, device="meta"))
        for count in (tokens, memory)
        if count
    ]
    with FlopCounterMode(display=False) as counter:
        layer(*sequences)
    block = re.compile(rf"{type(layer).__name__}\.blocks\.\d+")
    counts = {name: sum(each.values()) for name, each in counter.get_flop_counts().items()}
    in_blocks = sum(count for name, count in counts.items() if block.fullmatch(name))
    return int(counter.get_total_flops() - in_blocks)
