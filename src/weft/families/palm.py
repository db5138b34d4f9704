"""PaLM: parallel attention and feed-forward, multi-query attention, SwiGLU, RoPE, no biases
(Chowdhery et al. 2022, arXiv:2204.02311).

No weights are published. Each branch has its own norm, as in GPT-NeoX: "MLP(LayerNorm(x)) +
Attention(LayerNorm(x))" (section 2) does not say, and both readings give the printed number of
parameters.
"""

from typing import Any

from ..spec import (
    Attention,
    CausalAttention,
    FanInInit,
    GatedMLP,
    LayerNorm,
    LMHead,
    ParallelBlock,
    RoPE,
    Spec,
    Stack,
    Tokens,
    pre_norm,
)
from .base import Family, size_table

SIZES = size_table(
    "depth width heads",  # table 1; heads of 256 and four times the width in all sizes
    _8b=(32, 4096, 16),
    _62b=(64, 8192, 32),
    _540b=(118, 18432, 48),
)


def make(
    depth: int,
    width: int,
    heads: int,
    head_dim: int = 256,
    hidden: int | None = None,
    vocab_size: int = 256_000,
    theta: float = 10_000.0,
    eps: float = 1e-6,
    dropout: float = 0.0,
    head: Any = None,
) -> Spec:
    norm = LayerNorm(eps=eps, bias=False)
    attention = Attention(
        heads=heads,
        kv_heads=1,
        head_dim=head_dim,
        pattern=CausalAttention(),
        rope=RoPE(theta=theta),
        bias=False,
        out_bias=False,
    )
    gated = GatedMLP(hidden=hidden or 4 * width, activation="silu", bias=False)
    block = ParallelBlock(
        attention=pre_norm(norm, attention, dropout=dropout),
        feedforward=pre_norm(norm, gated, dropout=dropout),
    )
    return Spec(
        width=width,
        source=Tokens(vocab_size=vocab_size),
        decoder=Stack(blocks=(block,) * depth, norm=norm),
        # The table's rows have unit variance: as outputs they are scaled back (section 5, weight
        # initialisation).
        head=head or LMHead(tied=True, logit_scale=width**-0.5),
        context_length=2048,
    )


palm = Family("palm", "arXiv:2204.02311", make, SIZES, init=FanInInit())
