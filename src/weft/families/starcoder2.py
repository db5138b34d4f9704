"""StarCoder2: pre-norm causal decoder, LayerNorm, rotary positions, a feed-forward layer without gate (Lozhkov et al. 2024,
arXiv:2402.19173)."""
from dataclasses import replace
from typing import Any

from ..spec import Attention, Block, Causal, Dense, LayerNorm, Model, Rotary, Stack, Tokens, Vocabulary, Window, pre
from ..weights import PYTORCH_ACTIVATION, Family, Field, Table, both, layer, sizes
from .llama import ATTENTION, CORE, ENDS, HIDDEN, LOOK, heads
from .mistral import WINDOW

SIZES = sizes("depth width heads groups hidden theta window", _3b=(30, 3072, 24, 2, 12288, 999999.4420358813, 4096),
              _7b=(32, 4608, 36, 4, 18432, 1e6, 4096), _15b=(40, 6144, 48, 4, 24576, 1e5, 4096))


def make(depth: int, width: int, heads: int, hidden: int, groups: int | None = None, vocabulary: int = 49152, theta: float = 10_000.0,
         eps: float = 1e-5, activation: Any = "gelu_tanh", window: int | None = None, bias: bool = True, tied: bool = True,
         dropout: float = 0.0, embedding_dropout: float = 0.0, attention_dropout: float = 0.0, head: Any = None) -> Model:
    norm = LayerNorm(eps=eps)
    look = Attention(heads=heads, groups=None if groups == heads else groups, bias=bias, out_bias=bias, rotary=Rotary(theta=theta),
                     pattern=Window(before=window - 1, after=0) if window else Causal(), dropout=attention_dropout)
    block = Block(attention=pre(norm, look, dropout=dropout),
                  feedforward=pre(norm, Dense(hidden=hidden, activation=activation, bias=bias), dropout=dropout))
    return Model(width=width, source=Tokens(vocabulary=vocabulary, dropout=embedding_dropout),
                 decoder=Stack(blocks=(block,) * depth, norm=norm), head=head or Vocabulary(tied=tied))


DEFAULTS = {"depth": 30, "width": 3072, "heads": 24, "vocabulary": 49152, "tied": True, "std": 0.018042}
FIELDS = (
    *(replace(f, default=DEFAULTS.get(f.argument, f.default)) for f in CORE
      if f.argument not in ("head_width", "stretch", "eps", "groups")),
    Field("groups", "num_key_value_heads", lambda m: m.decoder.blocks[0].attention.inner.groups
          or m.decoder.blocks[0].attention.inner.heads, 2), WINDOW,
    Field("eps", "norm_epsilon", "decoder.norm.eps", 1e-5), Field("hidden", "intermediate_size", f"{HIDDEN}.hidden", 12288),
    Field("bias", "use_bias", f"{LOOK}.bias", True),
    Field("activation", "hidden_act", f"{HIDDEN}.activation", "gelu_tanh", PYTORCH_ACTIVATION),
    Field("dropout", "residual_dropout", "decoder.blocks.0.attention.dropout", 0.0),
    Field("embedding_dropout", "embedding_dropout", "source.dropout", 0.0))

DENSE = {"feedforward.inner.up": "mlp.c_fc", "feedforward.inner.down": "mlp.c_proj"}
TABLE: Table = (*(row for row in ENDS if getattr(row, "ours", "") != "decoder.norm.weight"), *both("decoder.norm", "model.norm"),
                *layer("decoder.blocks.{}", "model.layers.{}", ATTENTION | DENSE))

starcoder2 = Family("starcoder2", "arXiv:2402.19173", make, SIZES, "starcoder2", FIELDS, TABLE, prefix="model.",
                    context="max_position_embeddings", heads=heads("Starcoder2"), only={"rope_parameters.rope_type": ("default",)})
