"""Attention maps: the open kernel stands in for the fused one and keeps the weights it works with (spec H1)."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from ..kernels.attention import attention_weights, eager_attention
from ..layers.attention import AttentionLayer


@contextmanager
def attention_maps(model: nn.Module) -> Iterator[dict[str, Tensor]]:
    """Inside the block every forward fills the dictionary: module name -> (B, H, L, M); windows: (windows, H, cells, cells)."""
    maps: dict[str, Tensor] = {}
    attentions = {name: m for name, m in model.named_modules() if isinstance(m, AttentionLayer)}
    before = {name: m.backend for name, m in attentions.items()}

    def remember(name: str, layer: AttentionLayer) -> None:
        def kernel(
            q_BHLK: Tensor, k_BGMK: Tensor, v_BGMK: Tensor, mask: Tensor | None, **options: Any
        ) -> Tensor:
            without = {key: value for key, value in options.items() if key != "dropout"}
            maps[name] = attention_weights(q_BHLK, k_BGMK, mask, **without).detach()
            return eager_attention(q_BHLK, k_BGMK, v_BGMK, mask, **options)

        layer.backend = kernel

    try:
        for name, m in attentions.items():
            remember(name, m)
        yield maps
    finally:
        for name, m in attentions.items():
            m.backend = before[name]
