"""GPT: post-norm causal decoder with learned positions (Radford et al. 2018, "Improving language
understanding").
"""

from dataclasses import replace
from typing import Any

from ..spec import (
    MLP,
    Attention,
    Block,
    CausalAttention,
    LayerNorm,
    LearnedPositions,
    LMHead,
    NoHead,
    Spec,
    Stack,
    Tokens,
    post_norm,
)
from . import gpt2
from .base import ACTIVATION_CODEC, Codec, ConfigField, Family, size_table
from .weights import WeightTable, weight_and_bias

SIZES = size_table("depth width heads vocab_size positions", base=(12, 768, 12, 40478, 512))


def make(
    depth: int,
    width: int,
    heads: int,
    vocab_size: int = 40478,
    positions: int = 512,
    eps: float = 1e-5,
    activation: Any = "gelu_tanh",
    dropout: float = 0.1,
    attention_dropout: float = 0.1,
    embedding_dropout: float = 0.1,
    head: Any = None,
) -> Spec:
    norm = LayerNorm(eps=eps)
    block = Block(
        attention=post_norm(
            norm,
            Attention(heads=heads, pattern=CausalAttention(), dropout=attention_dropout),
            dropout=dropout,
        ),
        feedforward=post_norm(norm, MLP(hidden=4 * width, activation=activation), dropout=dropout),
    )
    return Spec(
        width=width,
        source=Tokens(
            vocab_size=vocab_size,
            positions=LearnedPositions(count=positions),
            dropout=embedding_dropout,
        ),
        decoder=Stack(blocks=(block,) * depth),
        head=head or LMHead(),
    )


def own(f: ConfigField) -> ConfigField:
    if f.argument == "eps":
        return replace(f, path="decoder.blocks.0.attention.after.eps")
    if f.argument == "activation":  # "gelu" means the tanh form here, as in the paper's code
        return replace(
            f,
            key="afn",
            codec=Codec(
                lambda n: "gelu_tanh" if n == "gelu" else ACTIVATION_CODEC.read(n),
                lambda n: "gelu" if n == "gelu_tanh" else ACTIVATION_CODEC.write(n),
            ),
        )
    return f


DEFAULTS = {"vocab_size": 40478, "positions": 512}
FIELDS = tuple(
    replace(own(f), default=DEFAULTS.get(f.argument, f.default))
    for f in gpt2.FIELDS
    if f.argument not in ("hidden", "tied")
)
TABLE: WeightTable = (
    *gpt2.body("tokens_embed", "positions_embed"),
    *weight_and_bias("decoder.blocks.{}.attention.after", "transformer.h.{}.ln_1"),
    *weight_and_bias("decoder.blocks.{}.feedforward.after", "transformer.h.{}.ln_2"),
)

gpt = Family(
    "gpt",
    "Radford et al. 2018",
    make,
    SIZES,
    "openai-gpt",
    FIELDS,
    TABLE,
    prefix="transformer.",
    heads={
        "OpenAIGPTLMHeadModel": lambda m, l: LMHead(),
        "OpenAIGPTModel": lambda m, l: NoHead(),
    },
)
