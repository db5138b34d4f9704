"""GPT-NeoX and Pythia: attention and feed-forward side by side, a quarter of each head rotary (Black et al. 2022, arXiv:2204.06745)."""
from typing import Any

from ..spec import Attention, Block, Causal, Dense, Features, LayerNorm, Model, Parallel, Rotary, Stack, Tokens, Vocabulary, pre
from ..weights import ACTIVATION, Family, Field, Row, Skip, Table, both, sizes

SIZES = sizes("depth width heads hidden vocabulary", _20b=(44, 6144, 64, 24576, 50432), pythia_70m=(6, 512, 8, 2048, 50304),
              pythia_160m=(12, 768, 12, 3072, 50304), pythia_410m=(24, 1024, 16, 4096, 50304), pythia_1b=(16, 2048, 8, 8192, 50304))


def make(depth: int, width: int, heads: int, hidden: int, vocabulary: int = 50432, fraction: float = 0.25, theta: float = 10_000.0,
         eps: float = 1e-5, activation: Any = "gelu", bias: bool = True, side_by_side: bool = True, dropout: float = 0.0,
         attention_dropout: float = 0.0, tied: bool = False, head: Any = None) -> Model:
    norm = LayerNorm(eps=eps)
    look = Attention(heads=heads, pattern=Causal(), rotary=Rotary(theta=theta, fraction=fraction), bias=bias, out_bias=bias,
                     dropout=attention_dropout)
    block = (Parallel if side_by_side else Block)(
        attention=pre(norm, look, dropout=dropout), feedforward=pre(norm, Dense(hidden=hidden, activation=activation), dropout=dropout))
    return Model(width=width, source=Tokens(vocabulary=vocabulary, dropout=dropout),
                 decoder=Stack(blocks=(block,) * depth, norm=norm), head=head or Vocabulary(tied=tied))


LOOK, HIDDEN = "decoder.blocks.0.attention.inner", "decoder.blocks.0.feedforward.inner"
FIELDS = (
    Field("depth", "num_hidden_layers", "decoder.blocks.length", 44), Field("width", "hidden_size", "width", 6144),
    Field("heads", "num_attention_heads", f"{LOOK}.heads", 64), Field("hidden", "intermediate_size", f"{HIDDEN}.hidden", 24576),
    Field("vocabulary", "vocab_size", "source.vocabulary", 50432),
    Field("fraction", ("rope_parameters.partial_rotary_factor", "rotary_pct"), f"{LOOK}.rotary.fraction", 0.25),
    Field("theta", ("rope_parameters.rope_theta", "rotary_emb_base"), f"{LOOK}.rotary.theta", 10_000.0),
    Field("eps", "layer_norm_eps", "decoder.norm.eps", 1e-5), Field("bias", "attention_bias", f"{LOOK}.bias", True),
    Field("activation", "hidden_act", f"{HIDDEN}.activation", "gelu", ACTIVATION),
    Field("side_by_side", "use_parallel_residual", lambda m: isinstance(m.decoder.blocks[0], Parallel), True),
    Field("dropout", "hidden_dropout", "source.dropout", 0.0), Field("attention_dropout", "attention_dropout", f"{LOOK}.dropout", 0.0),
    Field("tied", "tie_word_embeddings", lambda m: getattr(m.head, "tied", False), False),
    Field("std", "initializer_range", "start.std", 0.02))

OURS, THEIRS = "decoder.blocks.{}.", "gpt_neox.layers.{}."
TABLE: Table = (
    Row("source.tokens.weight", "gpt_neox.embed_in.weight"), *both("decoder.norm", "gpt_neox.final_layer_norm"),
    *both(OURS + "attention.before", THEIRS + "input_layernorm"), *both(OURS + "feedforward.before", THEIRS + "post_attention_layernorm"),
    *both(tuple(OURS + f"attention.inner.{n}" for n in ("query", "key", "value")), THEIRS + "attention.query_key_value", "by_head"),
    *both(OURS + "attention.inner.out", THEIRS + "attention.dense"),
    *both(OURS + "feedforward.inner.up", THEIRS + "mlp.dense_h_to_4h"), *both(OURS + "feedforward.inner.down",
        THEIRS + "mlp.dense_4h_to_h"),
    Row("head.out.weight", "embed_out.weight", when="Vocabulary"),
    *(Skip(THEIRS + f"attention.{name}", "worked out") for name in ("bias", "masked_bias", "rotary_emb.inv_freq")))

gpt_neox = Family("gpt_neox", "arXiv:2204.06745", make, SIZES, "gpt_neox", FIELDS, TABLE, prefix="gpt_neox.",
    context="max_position_embeddings",
                  only={"rope_parameters.rope_type": ("default",)},
                  heads={"GPTNeoXForCausalLM": lambda m, l: Vocabulary(tied=getattr(m.head, "tied", False)),
                         "GPTNeoXModel": lambda m, l: Features()})
