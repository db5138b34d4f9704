"""The Transformer of 2017: post-norm encoder-decoder, sinusoids, one shared token table (Vaswani et
al. 2017, arXiv:1706.03762).

No published file exists; the weight table has the names of `torch.nn.Transformer` and one token
table.
"""

from typing import Any

from ..spec import (
    MLP,
    Attention,
    Block,
    CausalAttention,
    LayerNorm,
    LMHead,
    SharedTokens,
    SinusoidalPositions,
    Spec,
    Stack,
    Tokens,
    XavierInit,
    post_norm,
)
from .base import Family, size_table
from .weights import WeightRow, WeightTable, layer_rows, weight_and_bias

SIZES = size_table(
    "depth width heads hidden dropout", base=(6, 512, 8, 2048, 0.1), big=(6, 1024, 16, 4096, 0.3)
)


def make(
    depth: int,
    width: int,
    heads: int,
    hidden: int,
    vocab_size: int = 37000,
    dropout: float = 0.1,
    final: bool = False,
    head: Any = None,
) -> Spec:
    """Return the spec; `final` adds a norm after each stack, as torch.nn.Transformer does and the
    paper does not.
    """
    norm = LayerNorm()
    attention_branch = post_norm(norm, Attention(heads=heads), dropout=dropout)
    feed = post_norm(norm, MLP(hidden=hidden, activation="relu"), dropout=dropout)
    causal = post_norm(norm, Attention(heads=heads, pattern=CausalAttention()), dropout=dropout)
    around: dict[str, Any] = {
        "positions": SinusoidalPositions(),
        "embedding_scale": width**0.5,
        "dropout": dropout,
    }
    return Spec(
        width=width,
        source=Tokens(vocab_size=vocab_size, **around),
        target=SharedTokens(**around),
        head=head or LMHead(),
        encoder=Stack(
            blocks=(Block(attention=attention_branch, feedforward=feed),) * depth,
            norm=norm if final else None,
        ),
        decoder=Stack(
            blocks=(Block(attention=causal, cross_attention=attention_branch, feedforward=feed),)
            * depth,
            norm=norm if final else None,
        ),
    )


def attention(ours: str, theirs: str) -> WeightTable:
    parts = tuple(f"{ours}.inner.{n}" for n in ("query", "key", "value"))
    return (
        WeightRow(tuple(f"{p}.weight" for p in parts), f"{theirs}.in_proj_weight"),
        WeightRow(tuple(f"{p}.bias" for p in parts), f"{theirs}.in_proj_bias"),
        *weight_and_bias(f"{ours}.inner.out", f"{theirs}.out_proj"),
    )


FEED = {
    "feedforward.inner.up": "linear1",
    "feedforward.inner.down": "linear2",
    "attention.after": "norm1",
}
TABLE: WeightTable = (
    WeightRow("source.tokens.weight", "tokens.weight"),
    *attention("encoder.blocks.{}.attention", "encoder.layers.{}.self_attn"),
    *attention("decoder.blocks.{}.attention", "decoder.layers.{}.self_attn"),
    *attention("decoder.blocks.{}.cross_attention", "decoder.layers.{}.multihead_attn"),
    *layer_rows("encoder.blocks.{}", "encoder.layers.{}", FEED | {"feedforward.after": "norm2"}),
    *layer_rows(
        "decoder.blocks.{}",
        "decoder.layers.{}",
        FEED | {"cross_attention.after": "norm2", "feedforward.after": "norm3"},
    ),
    *weight_and_bias("encoder.norm", "encoder.norm"),
    *weight_and_bias("decoder.norm", "decoder.norm"),
)

transformer = Family("transformer", "arXiv:1706.03762", make, SIZES, table=TABLE, init=XavierInit())
