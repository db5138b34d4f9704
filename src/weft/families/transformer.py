"""The Transformer of 2017: post-norm encoder-decoder, sinusoids, one shared table (Vaswani et al. 2017, arXiv:1706.03762).

No published file exists; the weight table is that of `torch.nn.Transformer`, beside one table of tokens.
"""
from typing import Any

from ..spec import Attention, Block, Causal, Dense, LayerNorm, Model, Shared, Sinusoid, Stack, Tokens, Vocabulary, Xavier, post
from ..weights import Family, Row, Table, both, layer, sizes

SIZES = sizes("depth width heads hidden dropout", base=(6, 512, 8, 2048, 0.1), big=(6, 1024, 16, 4096, 0.3))


def make(depth: int, width: int, heads: int, hidden: int, vocabulary: int = 37000, dropout: float = 0.1, final: bool = False,
         head: Any = None) -> Model:
    """`final` puts a norm behind each stack, as torch.nn.Transformer does and the paper does not."""
    norm = LayerNorm()
    look, feed = post(norm, Attention(heads=heads), dropout=dropout), post(norm, Dense(hidden=hidden, activation="relu"), dropout=dropout)
    causal = post(norm, Attention(heads=heads, pattern=Causal()), dropout=dropout)
    around: dict[str, Any] = {"positions": Sinusoid(), "scale": width ** 0.5, "dropout": dropout}
    return Model(width=width, source=Tokens(vocabulary=vocabulary, **around), target=Shared(**around), head=head or Vocabulary(),
                 encoder=Stack(blocks=(Block(attention=look, feedforward=feed),) * depth, norm=norm if final else None),
                 decoder=Stack(blocks=(Block(attention=causal, cross=look, feedforward=feed),) * depth, norm=norm if final else None))


def attention(ours: str, theirs: str) -> Table:
    parts = tuple(f"{ours}.inner.{n}" for n in ("query", "key", "value"))
    return (Row(tuple(f"{p}.weight" for p in parts), f"{theirs}.in_proj_weight"),
            Row(tuple(f"{p}.bias" for p in parts), f"{theirs}.in_proj_bias"),
            *both(f"{ours}.inner.out", f"{theirs}.out_proj"))


FEED = {"feedforward.inner.up": "linear1", "feedforward.inner.down": "linear2", "attention.after": "norm1"}
TABLE: Table = (
    Row("source.tokens.weight", "tokens.weight"),
    *attention("encoder.blocks.{}.attention", "encoder.layers.{}.self_attn"),
    *attention("decoder.blocks.{}.attention", "decoder.layers.{}.self_attn"),
    *attention("decoder.blocks.{}.cross", "decoder.layers.{}.multihead_attn"),
    *layer("encoder.blocks.{}", "encoder.layers.{}", FEED | {"feedforward.after": "norm2"}),
    *layer("decoder.blocks.{}", "decoder.layers.{}", FEED | {"cross.after": "norm2", "feedforward.after": "norm3"}),
    *both("encoder.norm", "encoder.norm"), *both("decoder.norm", "decoder.norm"))

transformer = Family("transformer", "arXiv:1706.03762", make, SIZES, table=TABLE, start=Xavier())
