"""StarCoder2: pre-norm causal decoder, LayerNorm, rotary positions, feed-forward without gate
(Lozhkov et al. 2024, arXiv:2402.19173).
"""

from dataclasses import replace
from typing import Any

from ..spec import (
    MLP,
    Attention,
    Block,
    CausalAttention,
    LayerNorm,
    LMHead,
    RoPE,
    SlidingWindow,
    Spec,
    Stack,
    Tokens,
    pre_norm,
)
from .base import PYTORCH_ACTIVATION_CODEC, ConfigField, Family, size_table
from .llama import ATTEND, ATTENTION, CORE, ENDS, HIDDEN, heads
from .mistral import WINDOW
from .weights import WeightTable, layer_rows, weight_and_bias

SIZES = size_table(
    "depth width heads kv_heads hidden theta window",
    _3b=(30, 3072, 24, 2, 12288, 999999.4420358813, 4096),
    _7b=(32, 4608, 36, 4, 18432, 1e6, 4096),
    _15b=(40, 6144, 48, 4, 24576, 1e5, 4096),
)


def make(
    depth: int,
    width: int,
    heads: int,
    hidden: int,
    kv_heads: int | None = None,
    vocab_size: int = 49152,
    theta: float = 10_000.0,
    eps: float = 1e-5,
    activation: Any = "gelu_tanh",
    window: int | None = None,
    bias: bool = True,
    tied: bool = True,
    dropout: float = 0.0,
    embedding_dropout: float = 0.0,
    attention_dropout: float = 0.0,
    head: Any = None,
) -> Spec:
    norm = LayerNorm(eps=eps)
    attention = Attention(
        heads=heads,
        kv_heads=None if kv_heads == heads else kv_heads,
        bias=bias,
        out_bias=bias,
        rope=RoPE(theta=theta),
        pattern=SlidingWindow(before=window - 1, after=0) if window else CausalAttention(),
        dropout=attention_dropout,
    )
    block = Block(
        attention=pre_norm(norm, attention, dropout=dropout),
        feedforward=pre_norm(
            norm, MLP(hidden=hidden, activation=activation, bias=bias), dropout=dropout
        ),
    )
    return Spec(
        width=width,
        source=Tokens(vocab_size=vocab_size, dropout=embedding_dropout),
        decoder=Stack(blocks=(block,) * depth, norm=norm),
        head=head or LMHead(tied=tied),
    )


DEFAULTS = {
    "depth": 30,
    "width": 3072,
    "heads": 24,
    "vocab_size": 49152,
    "tied": True,
    "std": 0.018042,
}
FIELDS = (
    *(
        replace(f, default=DEFAULTS.get(f.argument, f.default))
        for f in CORE
        if f.argument not in ("head_dim", "scaling", "eps", "kv_heads")
    ),
    ConfigField(
        "kv_heads",
        "num_key_value_heads",
        lambda m: (
            m.decoder.blocks[0].attention.inner.kv_heads
            or m.decoder.blocks[0].attention.inner.heads
        ),
        2,
    ),
    WINDOW,
    ConfigField("eps", "norm_epsilon", "decoder.norm.eps", 1e-5),
    ConfigField("hidden", "intermediate_size", f"{HIDDEN}.hidden", 12288),
    ConfigField("bias", "use_bias", f"{ATTEND}.bias", True),
    ConfigField(
        "activation", "hidden_act", f"{HIDDEN}.activation", "gelu_tanh", PYTORCH_ACTIVATION_CODEC
    ),
    ConfigField("dropout", "residual_dropout", "decoder.blocks.0.attention.dropout", 0.0),
    ConfigField("embedding_dropout", "embedding_dropout", "source.dropout", 0.0),
)

DENSE = {"feedforward.inner.up": "mlp.c_fc", "feedforward.inner.down": "mlp.c_proj"}
TABLE: WeightTable = (
    *(row for row in ENDS if getattr(row, "ours", "") != "decoder.norm.weight"),
    *weight_and_bias("decoder.norm", "model.norm"),
    *layer_rows("decoder.blocks.{}", "model.layers.{}", ATTENTION | DENSE),
)

starcoder2 = Family(
    "starcoder2",
    "arXiv:2402.19173",
    make,
    SIZES,
    "starcoder2",
    FIELDS,
    TABLE,
    prefix="model.",
    context_length_key="max_position_embeddings",
    heads=heads("Starcoder2"),
    supported_values={"rope_parameters.rope_type": ("default",)},
    training_length=4096,  # before longer contexts
)
