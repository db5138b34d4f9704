"""ModernBERT: pre-norm encoder, gated feed-forward, rotary positions, two windowed layers after
each global one (Warner et al. 2024, arXiv:2412.13663).
"""

from functools import cache
from typing import Any

from ..spec import (
    Attention,
    Block,
    Branch,
    ClassifierHead,
    FullAttention,
    GatedMLP,
    HeadTransform,
    LayerNorm,
    LMHead,
    NoHead,
    NormalInit,
    RoPE,
    SlidingWindow,
    Spec,
    Stack,
    TokenClassifierHead,
    Tokens,
    pre_norm,
)
from .base import ACTIVATION_CODEC, Codec, ConfigField, Family, size_table
from .weights import WeightAlias, WeightRow, WeightTable, weight_and_bias

SIZES = size_table("depth width heads hidden", base=(22, 768, 12, 1152), large=(28, 1024, 16, 2624))


def make(
    depth: int,
    width: int,
    heads: int,
    hidden: int,
    vocab_size: int = 50368,
    window: int = 64,
    every: int = 3,
    theta: float = 160_000.0,
    near_theta: float = 10_000.0,
    eps: float = 1e-5,
    activation: Any = "gelu",
    head: Any = None,
) -> Spec:
    norm = LayerNorm(eps=eps, bias=False)

    @cache
    def block(first: bool, near: bool) -> Block:
        attention = Attention(
            heads=heads,
            bias=False,
            out_bias=False,
            rope=RoPE(theta=near_theta if near else theta),
            pattern=SlidingWindow(before=window, after=window) if near else FullAttention(),
        )
        return Block(
            # the first norm is the embedding's
            attention=Branch(before=None if first else norm, inner=attention),
            feedforward=pre_norm(norm, GatedMLP(hidden=hidden, activation=activation, bias=False)),
        )

    return Spec(
        width=width,
        source=Tokens(vocab_size=vocab_size, norm=norm),
        encoder=Stack(blocks=tuple(block(i == 0, i % every != 0) for i in range(depth)), norm=norm),
        head=head or LMHead(bias="trained", transform=transform(norm)),
    )


def transform(norm: Any) -> HeadTransform:
    return HeadTransform(bias=False, norm=norm)


def every(spec: Spec) -> int:
    assert isinstance(spec.encoder, Stack)
    whole = [
        i
        for i, b in enumerate(spec.encoder.blocks)
        if b.attention.inner.pattern == FullAttention()  # type: ignore[attr-defined]
    ]
    return whole[1] if len(whole) > 1 else len(spec.encoder.blocks)


def layer_types(depth: int, every: int) -> list[str]:
    return ["sliding_attention" if i % every else "full_attention" for i in range(depth)]


def read_every(value: int | list[str]) -> int:
    """Convert the list of layer types; older files give the period of global layers instead."""
    if isinstance(value, int):
        return value
    every = ([i for i, kind in enumerate(value) if kind == "full_attention"][1:] or [len(value)])[0]
    if value != layer_types(len(value), every):
        raise ValueError(
            f"layer_types = {value} is not supported; give full_attention first and then at a "
            "fixed period"
        )
    return every


FIRST = "encoder.blocks.0.attention.inner"
NEAR = "encoder.blocks.1.attention.inner"
FIELDS = (
    ConfigField("depth", "num_hidden_layers", "encoder.blocks.length", 22),
    ConfigField("width", "hidden_size", "width", 768),
    ConfigField("heads", "num_attention_heads", f"{FIRST}.heads", 12),
    ConfigField("hidden", "intermediate_size", "encoder.blocks.0.feedforward.inner.hidden", 1152),
    ConfigField("vocab_size", "vocab_size", "source.vocab_size", 50368),
    ConfigField(
        "window",
        "local_attention",
        f"{NEAR}.pattern.before",
        64,
        Codec(lambda n: n // 2, lambda n: 2 * n),
    ),
    ConfigField(
        "every",
        "layer_types",
        every,
        3,
        Codec(read_every, int),
        legacy=("global_attn_every_n_layers",),
    ),
    ConfigField(
        "theta",
        ("rope_parameters.full_attention.rope_theta", "global_rope_theta"),
        f"{FIRST}.rope.theta",
        160_000.0,
    ),
    ConfigField(
        "near_theta",
        ("rope_parameters.sliding_attention.rope_theta", "local_rope_theta"),
        f"{NEAR}.rope.theta",
        10_000.0,
    ),
    ConfigField("eps", "norm_eps", "source.norm.eps", 1e-5),
    ConfigField(
        "activation",
        "hidden_activation",
        "encoder.blocks.0.feedforward.inner.activation",
        "gelu",
        ACTIVATION_CODEC,
    ),
)

OURS = "encoder.blocks.{}."
THEIRS = "model.layers.{}."
TABLE: WeightTable = (
    WeightRow("source.tokens.weight", "model.embeddings.tok_embeddings.weight"),
    WeightRow("source.norm.weight", "model.embeddings.norm.weight"),
    WeightRow(OURS + "attention.before.weight", THEIRS + "attn_norm.weight"),
    WeightRow(
        tuple(OURS + f"attention.inner.{n}.weight" for n in ("query", "key", "value")),
        THEIRS + "attn.Wqkv.weight",
    ),
    WeightRow(OURS + "attention.inner.out.weight", THEIRS + "attn.Wo.weight"),
    WeightRow(OURS + "feedforward.before.weight", THEIRS + "mlp_norm.weight"),
    WeightRow(
        (OURS + "feedforward.inner.gate.weight", OURS + "feedforward.inner.up.weight"),
        THEIRS + "mlp.Wi.weight",
    ),
    WeightRow(OURS + "feedforward.inner.down.weight", THEIRS + "mlp.Wo.weight"),
    WeightRow("encoder.norm.weight", "model.final_norm.weight"),
    WeightRow("head.transform.dense.weight", "head.dense.weight"),
    WeightRow("head.transform.norm.weight", "head.norm.weight"),
    WeightRow("head.bias", "decoder.bias", only_for="LMHead"),
    WeightAlias("decoder.weight", "model.embeddings.tok_embeddings.weight"),
    *weight_and_bias("head.out", "classifier", when="ClassifierHead TokenClassifierHead"),
)

modernbert = Family(
    "modernbert",
    "arXiv:2412.13663",
    make,
    SIZES,
    "modernbert",
    FIELDS,
    TABLE,
    prefix="model.",
    context_length_key="max_position_embeddings",
    init=NormalInit(truncate_at=2.0, scale_by_depth=True),
    derived_config=lambda m: {
        "layer_types": layer_types(len(m.encoder.blocks), every(m)),
        "global_attn_every_n_layers": every(m),
    },
    supported_values={
        "attention_bias": (False,),
        "mlp_bias": (False,),
        "norm_bias": (False,),
        "classifier_bias": (False,),
        "decoder_bias": (True,),
        "classifier_pooling": ("cls",),
        "classifier_activation": ("gelu",),
        "tie_word_embeddings": (True,),
        "rope_parameters.full_attention.rope_type": ("default",),
        "rope_parameters.sliding_attention.rope_type": ("default",),
    },
    heads={
        "ModernBertForMaskedLM": lambda m, l: LMHead(
            bias="trained", transform=transform(m.source.norm)
        ),
        "ModernBertModel": lambda m, l: NoHead(),
        "ModernBertForSequenceClassification": lambda m, l: ClassifierHead(
            num_labels=l.outputs, labels=l.labels, transform=transform(m.source.norm)
        ),
        "ModernBertForTokenClassification": lambda m, l: TokenClassifierHead(
            num_labels=l.outputs, labels=l.labels, transform=transform(m.source.norm)
        ),
    },
    training_length=1024,  # before longer contexts
)
