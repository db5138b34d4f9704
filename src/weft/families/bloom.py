"""BLOOM: pre-norm causal decoder with ALiBi and a norm on its embeddings (BigScience 2022,
arXiv:2211.05100).
"""

from typing import Any

from ..spec import (
    MLP,
    ALiBi,
    Attention,
    Block,
    CausalAttention,
    LayerNorm,
    LMHead,
    NoHead,
    Spec,
    Stack,
    Tokens,
    pre_norm,
)
from .base import ConfigField, Family, size_table
from .gpt2 import free_classes
from .weights import WeightRow, WeightTable, weight_and_bias

SIZES = size_table(
    "depth width heads",
    _560m=(24, 1024, 16),
    _1b1=(24, 1536, 16),
    _1b7=(24, 2048, 16),
    _3b=(30, 2560, 32),
    _7b1=(30, 4096, 32),
    _176b=(70, 14336, 112),
)


def make(
    depth: int,
    width: int,
    heads: int,
    vocab_size: int = 250880,
    eps: float = 1e-5,
    dropout: float = 0.0,
    attention_dropout: float = 0.0,
    head: Any = None,
) -> Spec:
    norm = LayerNorm(eps=eps)
    block = Block(
        attention=pre_norm(
            norm,
            Attention(heads=heads, pattern=CausalAttention(), dropout=attention_dropout),
            dropout=dropout,
        ),
        feedforward=pre_norm(norm, MLP(hidden=4 * width, activation="gelu_tanh"), dropout=dropout),
    )
    return Spec(
        width=width,
        source=Tokens(vocab_size=vocab_size, norm=norm),
        decoder=Stack(blocks=(block,) * depth, norm=norm, position_bias=ALiBi()),
        head=head or LMHead(),
    )


FIELDS = (
    ConfigField("depth", ("n_layer", "num_hidden_layers"), "decoder.blocks.length", 2),
    ConfigField("width", ("hidden_size", "n_embed"), "width", 64),
    ConfigField(
        "heads", ("n_head", "num_attention_heads"), "decoder.blocks.0.attention.inner.heads", 8
    ),
    ConfigField("vocab_size", "vocab_size", "source.vocab_size", 250880),
    ConfigField("eps", "layer_norm_epsilon", "source.norm.eps", 1e-5),
    ConfigField("dropout", "hidden_dropout", "decoder.blocks.0.attention.dropout", 0.0),
    ConfigField(
        "attention_dropout", "attention_dropout", "decoder.blocks.0.attention.inner.dropout", 0.0
    ),
    ConfigField("std", "initializer_range", "init.std", 0.02),
)

OURS = "decoder.blocks.{}."
THEIRS = "transformer.h.{}."
TABLE: WeightTable = (
    WeightRow("source.tokens.weight", "transformer.word_embeddings.weight"),
    *weight_and_bias("source.norm", "transformer.word_embeddings_layernorm"),
    *weight_and_bias(OURS + "attention.before", THEIRS + "input_layernorm"),
    *weight_and_bias(OURS + "feedforward.before", THEIRS + "post_attention_layernorm"),
    *weight_and_bias(
        tuple(OURS + f"attention.inner.{n}" for n in ("query", "key", "value")),
        THEIRS + "self_attention.query_key_value",
        "by_head",
    ),
    *weight_and_bias(OURS + "attention.inner.out", THEIRS + "self_attention.dense"),
    *weight_and_bias(OURS + "feedforward.inner.up", THEIRS + "mlp.dense_h_to_4h"),
    *weight_and_bias(OURS + "feedforward.inner.down", THEIRS + "mlp.dense_4h_to_h"),
    *weight_and_bias("decoder.norm", "transformer.ln_f"),
    WeightRow("head.out.weight", "lm_head.weight", only_for="LMHead"),
    WeightRow("head.out.weight", "score.weight", only_for="ClassifierHead"),
)

bloom = Family(
    "bloom",
    "arXiv:2211.05100",
    make,
    SIZES,
    "bloom",
    FIELDS,
    TABLE,
    prefix="transformer.",
    supported_values={"apply_residual_connection_post_layernorm": (False,)},
    heads={
        "BloomForCausalLM": lambda m, l: LMHead(),
        "BloomModel": lambda m, l: NoHead(),
        "BloomForSequenceClassification": free_classes,
    },
    training_length=2048,
)
