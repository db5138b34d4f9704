"""GPT-NeoX and Pythia: parallel attention and feed-forward, rotary positions on a quarter of each
head (Black et al. 2022, arXiv:2204.06745).
"""

from typing import Any

from ..spec import (
    MLP,
    Attention,
    Block,
    CausalAttention,
    LayerNorm,
    LMHead,
    NoHead,
    ParallelBlock,
    RoPE,
    Spec,
    Stack,
    Tokens,
    pre_norm,
)
from .base import ACTIVATION_CODEC, ConfigField, Family, size_table
from .weights import SkippedWeight, WeightRow, WeightTable, weight_and_bias

SIZES = size_table(
    "depth width heads hidden vocab_size",
    _20b=(44, 6144, 64, 24576, 50432),
    pythia_70m=(6, 512, 8, 2048, 50304),
    pythia_160m=(12, 768, 12, 3072, 50304),
    pythia_410m=(24, 1024, 16, 4096, 50304),
    pythia_1b=(16, 2048, 8, 8192, 50304),
)


def make(
    depth: int,
    width: int,
    heads: int,
    hidden: int,
    vocab_size: int = 50432,
    fraction: float = 0.25,
    theta: float = 10_000.0,
    eps: float = 1e-5,
    activation: Any = "gelu",
    bias: bool = True,
    side_by_side: bool = True,
    dropout: float = 0.0,
    attention_dropout: float = 0.0,
    tied: bool = False,
    head: Any = None,
) -> Spec:
    norm = LayerNorm(eps=eps)
    attention = Attention(
        heads=heads,
        pattern=CausalAttention(),
        rope=RoPE(theta=theta, fraction=fraction),
        bias=bias,
        out_bias=bias,
        dropout=attention_dropout,
    )
    block = (ParallelBlock if side_by_side else Block)(
        attention=pre_norm(norm, attention, dropout=dropout),
        feedforward=pre_norm(norm, MLP(hidden=hidden, activation=activation), dropout=dropout),
    )
    return Spec(
        width=width,
        source=Tokens(vocab_size=vocab_size, dropout=dropout),
        decoder=Stack(blocks=(block,) * depth, norm=norm),
        head=head or LMHead(tied=tied),
    )


ATTEND = "decoder.blocks.0.attention.inner"
HIDDEN = "decoder.blocks.0.feedforward.inner"
FIELDS = (
    ConfigField("depth", "num_hidden_layers", "decoder.blocks.length", 44),
    ConfigField("width", "hidden_size", "width", 6144),
    ConfigField("heads", "num_attention_heads", f"{ATTEND}.heads", 64),
    ConfigField("hidden", "intermediate_size", f"{HIDDEN}.hidden", 24576),
    ConfigField("vocab_size", "vocab_size", "source.vocab_size", 50432),
    ConfigField(
        "fraction",
        ("rope_parameters.partial_rotary_factor", "rotary_pct"),
        f"{ATTEND}.rope.fraction",
        0.25,
    ),
    ConfigField(
        "theta", ("rope_parameters.rope_theta", "rotary_emb_base"), f"{ATTEND}.rope.theta", 10_000.0
    ),
    ConfigField("eps", "layer_norm_eps", "decoder.norm.eps", 1e-5),
    ConfigField("bias", "attention_bias", f"{ATTEND}.bias", True),
    ConfigField("activation", "hidden_act", f"{HIDDEN}.activation", "gelu", ACTIVATION_CODEC),
    ConfigField(
        "side_by_side",
        "use_parallel_residual",
        lambda m: isinstance(m.decoder.blocks[0], ParallelBlock),
        True,
    ),
    ConfigField("dropout", "hidden_dropout", "source.dropout", 0.0),
    ConfigField("attention_dropout", "attention_dropout", f"{ATTEND}.dropout", 0.0),
    ConfigField("tied", "tie_word_embeddings", lambda m: getattr(m.head, "tied", False), False),
    ConfigField("std", "initializer_range", "init.std", 0.02),
)

OURS = "decoder.blocks.{}."
THEIRS = "gpt_neox.layers.{}."
TABLE: WeightTable = (
    WeightRow("source.tokens.weight", "gpt_neox.embed_in.weight"),
    *weight_and_bias("decoder.norm", "gpt_neox.final_layer_norm"),
    *weight_and_bias(OURS + "attention.before", THEIRS + "input_layernorm"),
    *weight_and_bias(OURS + "feedforward.before", THEIRS + "post_attention_layernorm"),
    *weight_and_bias(
        tuple(OURS + f"attention.inner.{n}" for n in ("query", "key", "value")),
        THEIRS + "attention.query_key_value",
        "by_head",
    ),
    *weight_and_bias(OURS + "attention.inner.out", THEIRS + "attention.dense"),
    *weight_and_bias(OURS + "feedforward.inner.up", THEIRS + "mlp.dense_h_to_4h"),
    *weight_and_bias(OURS + "feedforward.inner.down", THEIRS + "mlp.dense_4h_to_h"),
    WeightRow("head.out.weight", "embed_out.weight", only_for="LMHead"),
    *(
        SkippedWeight(THEIRS + f"attention.{name}", "worked out")
        for name in ("bias", "masked_bias", "rotary_emb.inv_freq")
    ),
)

gpt_neox = Family(
    "gpt_neox",
    "arXiv:2204.06745",
    make,
    SIZES,
    "gpt_neox",
    FIELDS,
    TABLE,
    prefix="gpt_neox.",
    context_length_key="max_position_embeddings",
    supported_values={"rope_parameters.rope_type": ("default",)},
    heads={
        "GPTNeoXForCausalLM": lambda m, l: LMHead(tied=getattr(m.head, "tied", False)),
        "GPTNeoXModel": lambda m, l: NoHead(),
    },
    training_length=2048,  # Pythia too, arXiv:2304.01373
)
