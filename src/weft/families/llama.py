"""Llama: pre-norm causal decoder, RMSNorm, rotary positions, SwiGLU, grouped-query attention
(Touvron et al. 2023, arXiv:2302.13971).
"""

from typing import Any

from ..spec import (
    Attention,
    Block,
    CausalAttention,
    GatedMLP,
    LMHead,
    NoHead,
    QKNorm,
    RMSNorm,
    RoPE,
    RoPEScaling,
    SlidingWindow,
    Spec,
    Stack,
    Tokens,
    pre_norm,
)
from .base import ACTIVATION_CODEC, Codec, ConfigField, Family, size_table
from .gpt2 import free_classes
from .weights import SkippedWeight, WeightRow, WeightTable, layer_rows

SIZES = {
    **size_table(
        "depth width heads kv_heads hidden vocab_size theta eps",
        _7b=(32, 4096, 32, 32, 11008, 32000, 1e4, 1e-5),
        _13b=(40, 5120, 40, 40, 13824, 32000, 1e4, 1e-5),
        _65b=(80, 8192, 64, 64, 22016, 32000, 1e4, 1e-5),
        _2_70b=(80, 8192, 64, 8, 28672, 32000, 1e4, 1e-5),
        _3_8b=(32, 4096, 32, 8, 14336, 128256, 5e5, 1e-5),
        _3_70b=(80, 8192, 64, 8, 28672, 128256, 5e5, 1e-5),
    ),
    **size_table(
        "depth width heads kv_heads hidden vocab_size theta eps tied scaling",
        _3__1_405b=(126, 16384, 128, 8, 53248, 128256, 5e5, 1e-5, False, RoPEScaling(factor=8.0)),
        _3__2_1b=(16, 2048, 32, 8, 8192, 128256, 5e5, 1e-5, True, RoPEScaling(factor=32.0)),
        _3__2_3b=(28, 3072, 24, 8, 8192, 128256, 5e5, 1e-5, True, RoPEScaling(factor=32.0)),
        smollm2_135m=(30, 576, 9, 3, 1536, 49152, 1e5, 1e-5, True, None),
    ),
}


def make(
    depth: int,
    width: int,
    heads: int,
    hidden: int,
    kv_heads: int | None = None,
    head_dim: int | None = None,
    vocab_size: int = 32000,
    theta: float = 10_000.0,
    scaling: RoPEScaling | None = None,
    eps: float = 1e-6,
    activation: Any = "silu",
    window: int | None = None,
    bias: bool = False,
    hidden_bias: bool = False,
    tied: bool = False,
    attention_dropout: float = 0.0,
    head: Any = None,
    feedforward: Any = None,
    qk_norm: QKNorm | None = None,
) -> Spec:
    norm = RMSNorm(eps=eps)
    attention = Attention(
        heads=heads,
        kv_heads=kv_heads or heads,
        head_dim=head_dim or width // heads,
        bias=bias,
        out_bias=bias,
        pattern=SlidingWindow(before=window - 1, after=0) if window else CausalAttention(),
        rope=RoPE(theta=theta, scaling=scaling),
        dropout=attention_dropout,
        qk_norm=qk_norm,
    )
    gated = feedforward or GatedMLP(hidden=hidden, activation=activation, bias=hidden_bias)
    block = Block(attention=pre_norm(norm, attention), feedforward=pre_norm(norm, gated))
    return Spec(
        width=width,
        source=Tokens(vocab_size=vocab_size),
        decoder=Stack(blocks=(block,) * depth, norm=norm),
        head=head or LMHead(tied=tied),
    )


def read_stretch(config_value: Any) -> RoPEScaling | None:
    kind = config_value.get("rope_type", config_value.get("type", "default"))
    if kind not in ("default", "llama3"):
        raise ValueError(
            f"config.json: rotary scaling {kind!r} is not supported; supported: 'default', 'llama3'"
        )
    return (
        None
        if kind == "default"
        else RoPEScaling(
            factor=float(config_value["factor"]),
            low_freq_factor=float(config_value["low_freq_factor"]),
            high_freq_factor=float(config_value["high_freq_factor"]),
            original_context_length=config_value["original_max_position_embeddings"],
        )
    )


def write_stretch(spec: RoPEScaling | None) -> dict[str, Any]:
    return (
        {"rope_type": "default"}
        if spec is None
        else {
            "rope_type": "llama3",
            "factor": spec.factor,
            "low_freq_factor": spec.low_freq_factor,
            "high_freq_factor": spec.high_freq_factor,
            "original_max_position_embeddings": spec.original_context_length,
        }
    )


ATTEND = "decoder.blocks.0.attention.inner"
HIDDEN = "decoder.blocks.0.feedforward.inner"
STRETCH = ConfigField(
    "scaling",
    ("rope_parameters", "rope_scaling"),
    f"{ATTEND}.rope.scaling",
    None,
    Codec(read_stretch, write_stretch),
)
CORE = (
    ConfigField("depth", "num_hidden_layers", "decoder.blocks.length", 32),
    ConfigField("width", "hidden_size", "width", 4096),
    ConfigField("heads", "num_attention_heads", f"{ATTEND}.heads", 32),
    ConfigField("kv_heads", "num_key_value_heads", f"{ATTEND}.kv_heads"),
    ConfigField("head_dim", "head_dim", f"{ATTEND}.head_dim"),
    ConfigField("vocab_size", "vocab_size", "source.vocab_size", 32000),
    STRETCH,
    ConfigField(
        "theta",
        ("rope_parameters.rope_theta", "rope_theta"),
        f"{ATTEND}.rope.theta",
        10_000.0,
        Codec(float, float),
    ),
    ConfigField("eps", "rms_norm_eps", "decoder.norm.eps", 1e-6),
    ConfigField("tied", "tie_word_embeddings", lambda m: getattr(m.head, "tied", False), False),
    ConfigField("attention_dropout", "attention_dropout", f"{ATTEND}.dropout", 0.0),
    ConfigField("std", "initializer_range", "init.std", 0.02),
)
FIELDS = (
    *CORE,
    ConfigField("hidden", "intermediate_size", f"{HIDDEN}.hidden", 11008),
    ConfigField("bias", "attention_bias", f"{ATTEND}.bias", False),
    ConfigField("hidden_bias", "mlp_bias", f"{HIDDEN}.bias", False),
    ConfigField("activation", "hidden_act", f"{HIDDEN}.activation", "silu", ACTIVATION_CODEC),
)

ATTENTION = {
    "attention.before": "input_layernorm",
    "attention.inner.query": "self_attn.q_proj",
    "attention.inner.key": "self_attn.k_proj",
    "attention.inner.value": "self_attn.v_proj",
    "attention.inner.out": "self_attn.o_proj",
    "feedforward.before": "post_attention_layernorm",
}
GATED = {
    "feedforward.inner.gate": "mlp.gate_proj",
    "feedforward.inner.up": "mlp.up_proj",
    "feedforward.inner.down": "mlp.down_proj",
}
ENDS: WeightTable = (
    WeightRow("source.tokens.weight", "model.embed_tokens.weight"),
    WeightRow("decoder.norm.weight", "model.norm.weight"),
    WeightRow("head.out.weight", "lm_head.weight", only_for="LMHead"),
    WeightRow("head.out.weight", "score.weight", only_for="ClassifierHead"),
    SkippedWeight("model.layers.{}.self_attn.rotary_emb.inv_freq", "worked out"),
)
TABLE: WeightTable = (*ENDS, *layer_rows("decoder.blocks.{}", "model.layers.{}", ATTENTION | GATED))


def heads(name: str) -> dict[str, Any]:
    return {
        f"{name}ForCausalLM": lambda m, l: LMHead(tied=getattr(m.head, "tied", False)),
        f"{name}Model": lambda m, l: NoHead(),
        f"{name}ForSequenceClassification": free_classes,
    }


llama = Family(
    "llama",
    "arXiv:2302.13971",
    make,
    SIZES,
    "llama",
    FIELDS,
    TABLE,
    prefix="model.",
    context_length_key="max_position_embeddings",
    heads=heads("Llama"),
    supported_values={"pretraining_tp": (1,)},
    # Llama 2: arXiv:2307.09288; Llama 3: arXiv:2407.21783, before longer contexts
    training_length={
        "7b": 2048,
        "13b": 2048,
        "65b": 2048,
        "2-70b": 4096,
        "3-8b": 8192,
        "3-70b": 8192,
    },
)
