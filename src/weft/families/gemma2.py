"""Gemma 2: sandwich norms, sliding windows in every other layer, soft caps on scores and logits
(Gemma Team 2024, arXiv:2408.00118).
"""

from functools import cache
from typing import Any

from ..spec import (
    Attention,
    Block,
    CausalAttention,
    GatedMLP,
    LMHead,
    RMSNorm,
    RoPE,
    SlidingWindow,
    Spec,
    Stack,
    Tokens,
    sandwich_norm,
)
from .base import PYTORCH_ACTIVATION_CODEC, TUPLE_CODEC, Codec, ConfigField, Family, size_table
from .llama import heads as llama_heads
from .weights import WeightRow, WeightTable, layer_rows

SIZES = size_table(
    "depth width heads kv_heads head_dim hidden query",
    _2b=(26, 2304, 8, 4, 256, 9216, 256),
    _9b=(42, 3584, 16, 8, 256, 14336, 256),
    _27b=(46, 4608, 32, 16, 128, 36864, 144),
)


def make(
    depth: int,
    width: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    hidden: int,
    query: float = 256,
    vocab_size: int = 256000,
    window: int = 4096,
    theta: float = 10_000.0,
    eps: float = 1e-6,
    activation: Any = "gelu_tanh",
    head: Any = None,
    kinds: tuple[str, ...] | None = None,
    softcap: float | None = 50.0,
    logit_softcap: float | None = 30.0,
) -> Spec:
    """Return the spec.

    Args:
        kinds: the attention of each layer (default: full in every other layer, from the second).
        softcap: the soft cap of the attention scores.
    """
    if kinds is not None and len(kinds) != depth:
        raise ValueError(f"kinds has {len(kinds)} entries for depth = {depth}; give one per layer")
    norm = RMSNorm(eps=eps)

    whole = [bool(i % 2) if kinds is None else kinds[i] == "full_attention" for i in range(depth)]

    @cache
    def block(whole: bool) -> Block:
        attention = Attention(
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            bias=False,
            out_bias=False,
            scale=query**-0.5,
            softcap=softcap,
            rope=RoPE(theta=theta),
            pattern=CausalAttention() if whole else SlidingWindow(before=window - 1, after=0),
        )
        return Block(
            attention=sandwich_norm(norm, attention),
            feedforward=sandwich_norm(
                norm, GatedMLP(hidden=hidden, activation=activation, bias=False)
            ),
        )

    return Spec(
        width=width,
        source=Tokens(vocab_size=vocab_size, embedding_scale=width**0.5),
        head=head or LMHead(softcap=logit_softcap),
        decoder=Stack(blocks=tuple(map(block, whole)), norm=norm),
    )


def kinds(m: Any) -> tuple[str, ...]:
    return tuple(
        "full_attention" if b.attention.inner.pattern == CausalAttention() else "sliding_attention"
        for b in m.decoder.blocks
    )


def window(m: Any) -> int:
    return next(
        (
            b.attention.inner.pattern.before + 1
            for b in m.decoder.blocks
            if b.attention.inner.pattern != CausalAttention()
        ),
        4096,
    )


ATTEND = "decoder.blocks.0.attention.inner"
HIDDEN = "decoder.blocks.0.feedforward.inner"
FIELDS = (
    ConfigField("depth", "num_hidden_layers", "decoder.blocks.length", 26),
    ConfigField("width", "hidden_size", "width", 2304),
    ConfigField("heads", "num_attention_heads", f"{ATTEND}.heads", 8),
    ConfigField("kv_heads", "num_key_value_heads", f"{ATTEND}.kv_heads", 4),
    ConfigField("head_dim", "head_dim", f"{ATTEND}.head_dim", 256),
    ConfigField("hidden", "intermediate_size", f"{HIDDEN}.hidden", 9216),
    ConfigField(
        "query",
        "query_pre_attn_scalar",
        lambda m: round(m.decoder.blocks[0].attention.inner.scale ** -2),
        256,
    ),
    ConfigField("vocab_size", "vocab_size", "source.vocab_size", 256000),
    ConfigField("window", "sliding_window", window, 4096),
    ConfigField("kinds", "layer_types", kinds, None, TUPLE_CODEC),
    ConfigField(
        "theta",
        ("rope_parameters.rope_theta", "rope_theta"),
        f"{ATTEND}.rope.theta",
        10_000.0,
        Codec(float, float),
    ),
    ConfigField("eps", "rms_norm_eps", "decoder.norm.eps", 1e-6),
    ConfigField(
        "activation",
        ("hidden_activation", "hidden_act"),
        f"{HIDDEN}.activation",
        "gelu_tanh",
        PYTORCH_ACTIVATION_CODEC,
    ),
    ConfigField("softcap", "attn_logit_softcapping", f"{ATTEND}.softcap", 50.0, nullable=True),
    ConfigField(
        "logit_softcap",
        "final_logit_softcapping",
        lambda m: getattr(m.head, "softcap", 30.0),
        30.0,
        nullable=True,
    ),
    ConfigField("std", "initializer_range", "init.std", 0.02),
)

NORMS = {
    "attention.before": "input_layernorm",
    "attention.out": "post_attention_layernorm",
    "feedforward.before": "pre_feedforward_layernorm",
    "feedforward.out": "post_feedforward_layernorm",
}
MAPS = {
    "attention.inner.query": "self_attn.q_proj",
    "attention.inner.key": "self_attn.k_proj",
    "attention.inner.value": "self_attn.v_proj",
    "attention.inner.out": "self_attn.o_proj",
    "feedforward.inner.gate": "mlp.gate_proj",
    "feedforward.inner.up": "mlp.up_proj",
    "feedforward.inner.down": "mlp.down_proj",
}
TABLE: WeightTable = (
    WeightRow("source.tokens.weight", "model.embed_tokens.weight"),
    WeightRow("decoder.norm.weight", "model.norm.weight", "less_one"),
    *layer_rows("decoder.blocks.{}", "model.layers.{}", NORMS, "less_one"),
    *layer_rows("decoder.blocks.{}", "model.layers.{}", MAPS),
    WeightRow("head.out.weight", "lm_head.weight", only_for="LMHead"),
    WeightRow("head.out.weight", "score.weight", only_for="ClassifierHead"),
)

gemma2 = Family(
    "gemma2",
    "arXiv:2408.00118",
    make,
    SIZES,
    "gemma2",
    FIELDS,
    TABLE,
    prefix="model.",
    context_length_key="max_position_embeddings",
    heads=llama_heads("Gemma2")
    | {"Gemma2ForCausalLM": lambda m, l: LMHead(softcap=getattr(m.head, "softcap", 30.0))},
    supported_values={
        "attention_bias": (False,),
        "use_bidirectional_attention": (None, False),
        "rope_parameters.rope_type": ("default",),
    },
    training_length=8192,
)
