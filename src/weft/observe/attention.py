"""Attention maps: the open kernel stands in for the fused one and keeps the weights it works with (spec H1)."""
from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn

from ..layers.attention import Attention, opened, weights


@contextmanager
def attention_maps(model: nn.Module) -> Iterator[dict[str, Tensor]]:
    """Inside the block every forward fills the dictionary: module name -> (B, H, L, M); windows: (windows, H, cells, cells)."""
    maps: dict[str, Tensor] = {}
    found = {name: m for name, m in model.named_modules() if isinstance(m, Attention)}
    before = {name: m.kernel for name, m in found.items()}

    def remember(name: str, m: Attention) -> None:
        def kernel(q_BHLK: Tensor, k_BGMK: Tensor, v_BGMK: Tensor, mask: Tensor | None, *, causal: bool, scale: float | None,
                   dropout: float, softcap: float | None = None) -> Tensor:
            maps[name] = weights(q_BHLK, k_BGMK, mask, causal, scale, softcap).detach()
            return opened(q_BHLK, k_BGMK, v_BGMK, mask, causal=causal, scale=scale, dropout=dropout, softcap=softcap)
        m.kernel = kernel

    try:
        for name, m in found.items():
            remember(name, m)
        yield maps
    finally:
        for name, m in found.items():
            m.kernel = before[name]
