"""T5: encoder-decoder with relative position buckets and unscaled scores (Raffel et al. 2020,
arXiv:1910.10683); v1.1, mT5 and ByT5 have gated feed-forward layers and an untied head
(arXiv:2010.11934, arXiv:2105.13626).
"""

from dataclasses import replace
from typing import Any

from .. import spec
from ..spec import (
    MLP,
    Attention,
    Block,
    CausalAttention,
    GatedMLP,
    LMHead,
    NoHead,
    RelativeBias,
    RMSNorm,
    SharedTokens,
    Spec,
    Stack,
    Tokens,
    pre_norm,
)
from .base import Codec, ConfigField, Family, size_table
from .weights import SkippedWeight, WeightAlias, WeightRow, WeightTable


def make(
    depth: int,
    width: int,
    heads: int,
    hidden: int,
    head_dim: int = 64,
    decoder_depth: int | None = None,
    vocab_size: int = 32128,
    buckets: int = 32,
    max_distance: int = 128,
    eps: float = 1e-6,
    activation: Any = "relu",
    gated: bool = False,
    scaled: bool = True,
    tied: bool = True,
    dropout: float = 0.1,
    head: Any = None,
) -> Spec:
    norm = RMSNorm(eps=eps)
    attention = Attention(
        heads=heads, head_dim=head_dim, bias=False, out_bias=False, scale=1.0, dropout=dropout
    )
    inner = (GatedMLP if gated else MLP)(
        hidden=hidden, activation=activation, bias=False, dropout=dropout
    )
    attention_branch = pre_norm(norm, attention, dropout=dropout)
    feed = pre_norm(norm, inner, dropout=dropout)
    causal = replace(attention_branch, inner=replace(attention, pattern=CausalAttention()))
    return Spec(
        width=width,
        source=Tokens(vocab_size=vocab_size, dropout=dropout),
        target=SharedTokens(dropout=dropout),
        encoder=Stack(
            blocks=(Block(attention=attention_branch, feedforward=feed),) * depth,
            norm=norm,
            position_bias=RelativeBias(buckets=buckets, max_distance=max_distance),
        ),
        decoder=Stack(
            blocks=(Block(attention=causal, cross_attention=attention_branch, feedforward=feed),)
            * (decoder_depth or depth),
            norm=norm,
            position_bias=RelativeBias(
                buckets=buckets, max_distance=max_distance, bidirectional=False
            ),
        ),
        head=head or LMHead(tied=tied, logit_scale=width**-0.5 if scaled else 1.0),
    )


PROJ = {"relu": (False, "relu"), "gated-gelu": (True, "gelu_tanh"), "gated-silu": (True, "silu")}


def read_proj(name: str) -> tuple[bool, str]:
    if name not in PROJ:
        raise ValueError(
            f"feed_forward_proj = {name!r} is not supported; supported: {', '.join(PROJ)}"
        )
    return PROJ[name]


def write_proj(m: Any) -> dict[str, Any]:
    inner = m.encoder.blocks[0].feedforward.inner
    names = [
        name
        for name, kind in PROJ.items()
        if kind == (isinstance(inner, GatedMLP), inner.activation)
    ]
    if not names:
        raise ValueError(
            f"a T5 file knows {', '.join(PROJ)}, not {type(inner).__name__} with {inner.activation}"
        )
    return {"feed_forward_proj": names[0]}


ATTEND = "encoder.blocks.0.attention.inner"
HIDDEN = "encoder.blocks.0.feedforward.inner"
FIELDS = (
    ConfigField("depth", "num_layers", "encoder.blocks.length", 6),
    ConfigField("decoder_depth", "num_decoder_layers", "decoder.blocks.length"),
    ConfigField("width", "d_model", "width", 512),
    ConfigField("heads", "num_heads", f"{ATTEND}.heads", 8),
    ConfigField("head_dim", "d_kv", f"{ATTEND}.head_dim", 64),
    ConfigField("hidden", "d_ff", f"{HIDDEN}.hidden", 2048),
    ConfigField("vocab_size", "vocab_size", "source.vocab_size", 32128),
    ConfigField("dropout", "dropout_rate", "source.dropout", 0.1),
    ConfigField("buckets", "relative_attention_num_buckets", "encoder.position_bias.buckets", 32),
    ConfigField(
        "max_distance", "relative_attention_max_distance", "encoder.position_bias.max_distance", 128
    ),
    # `write_proj` writes the next two
    ConfigField("eps", "layer_norm_epsilon", "encoder.norm.eps", 1e-6),
    ConfigField(
        "activation",
        "feed_forward_proj",
        f"{HIDDEN}.activation",
        "relu",
        Codec(lambda n: read_proj(n)[1], str),
    ),
    ConfigField(
        "gated",
        "feed_forward_proj",
        lambda m: isinstance(m.encoder.blocks[0].feedforward.inner, GatedMLP),
        False,
        Codec(lambda n: read_proj(n)[0], bool),
    ),
)
TIED = ConfigField("tied", "tie_word_embeddings", lambda m: getattr(m.head, "tied", True), True)
SCALED = ConfigField(
    "scaled",
    "scale_decoder_outputs",
    lambda m: getattr(m.head, "logit_scale", 0.0) != 1.0,
    True,
    legacy=("tie_word_embeddings",),
)

ATTENTION = {"query": "q", "key": "k", "value": "v", "out": "o"}


def branch(
    stack: str, ours: str, index: int, theirs: str, names: dict[str, str], when: str = ""
) -> WeightTable:
    here = f"{stack}.blocks.{{}}.{ours}"
    there = f"{stack}.block.{{}}.layer.{index}"
    return (
        WeightRow(f"{here}.before.weight", f"{there}.layer_norm.weight", only_for=when),
        *(
            WeightRow(f"{here}.inner.{o}.weight", f"{there}.{theirs}.{t}.weight", only_for=when)
            for o, t in names.items()
        ),
    )


STACKS = ("encoder", "decoder")
DENSE = {"up": "wi", "down": "wo"}
GATED = {"gate": "wi_0", "up": "wi_1", "down": "wo"}
TABLE: WeightTable = (
    WeightRow("source.tokens.weight", "shared.weight"),
    *(WeightAlias(f"{s}.embed_tokens.weight", "shared.weight", "source") for s in STACKS),
    *(
        WeightRow(
            f"{s}.position_bias.weight",
            f"{s}.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
        )
        for s in STACKS
    ),
    *(row for s in STACKS for row in branch(s, "attention", 0, "SelfAttention", ATTENTION)),
    *branch("decoder", "cross_attention", 1, "EncDecAttention", ATTENTION),
    *(
        row
        for i, s in enumerate(STACKS)
        for row in branch(s, "feedforward", i + 1, "DenseReluDense", DENSE, "MLP")
    ),
    *(
        row
        for i, s in enumerate(STACKS)
        for row in branch(s, "feedforward", i + 1, "DenseReluDense", GATED, "GatedMLP")
    ),
    *(WeightRow(f"{s}.norm.weight", f"{s}.final_layer_norm.weight") for s in STACKS),
    WeightRow("head.out.weight", "lm_head.weight"),
    SkippedWeight(
        "decoder.block.{}.layer.1.EncDecAttention.relative_attention_bias.weight",
        "unused: cross-attention has no position bias",
    ),
)


def heads(name: str) -> dict[str, Any]:
    return {
        f"{name}ForConditionalGeneration": lambda m, l: (
            m.head if isinstance(m.head, LMHead) else LMHead()
        ),
        f"{name}Model": lambda m, l: NoHead(),
    }


COLUMNS = "depth width heads hidden"
t5 = Family(
    "t5",
    "arXiv:1910.10683",
    make,
    {
        **size_table(
            COLUMNS, small=(6, 512, 8, 2048), base=(12, 768, 12, 3072), large=(24, 1024, 16, 4096)
        ),
        **size_table(
            COLUMNS + " head_dim",
            _3b=(24, 1024, 32, 16384, 128),
            _11b=(24, 1024, 128, 65536, 128),
        ),
    },
    "t5",
    (*FIELDS, TIED, SCALED),
    TABLE,
    heads("T5"),
    init=spec.T5Init(),
    derived_config=write_proj,
    decoder_start="pad",
    training_length=512,
)


def gated(**more: Any) -> Any:
    return lambda **arguments: make(
        **{
            "gated": True,
            "activation": "gelu_tanh",
            "scaled": False,
            "tied": False,
            **more,
            **arguments,
        }
    )


V1_1 = size_table(
    COLUMNS,
    small=(8, 512, 6, 1024),
    base=(12, 768, 12, 2048),
    large=(24, 1024, 16, 2816),
    xl=(24, 2048, 32, 5120),
    xxl=(24, 4096, 64, 10240),
)
MT5 = {
    "depth": 8,
    "heads": 6,
    "hidden": 1024,
    "vocab_size": 250112,
    "activation": "gelu_tanh",
    "gated": True,
}
t5_v1_1 = replace(t5, name="t5_v1_1", build_spec=gated(), sizes=V1_1)
mt5 = replace(
    t5,
    name="mt5",
    paper="arXiv:2010.11934",
    build_spec=gated(vocab_size=250112),
    sizes=V1_1,
    model_type="mt5",
    training_length=1024,
    heads=heads("MT5"),
    fields=tuple(replace(f, default=MT5.get(f.argument, f.default)) for f in (*FIELDS, TIED)),
    supported_values={"scale_decoder_outputs": (False,)},
)
byt5 = replace(
    t5,
    name="byt5",
    paper="arXiv:2105.13626",
    training_length=1024,  # bytes
    build_spec=gated(vocab_size=384),
    sizes=size_table(
        COLUMNS + " decoder_depth",
        small=(12, 1472, 6, 3584, 4),
        base=(18, 1536, 12, 3968, 6),
        large=(36, 1536, 16, 3840, 12),
        xl=(36, 2560, 32, 6720, 12),
        xxl=(36, 4672, 64, 12352, 12),
    ),
)
