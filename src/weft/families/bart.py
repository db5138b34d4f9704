"""BART: post-norm encoder-decoder with learned positions that start at row 2 (Lewis et al. 2019,
arXiv:1910.13461).
"""

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
    SharedTokens,
    Spec,
    Stack,
    Tokens,
    post_norm,
    pre_norm,
)
from .base import ACTIVATION_CODEC, ConfigField, Family, size_table
from .weights import WeightAlias, WeightRow, WeightTable, layer_rows, weight_and_bias

SIZES = size_table("depth width heads hidden", base=(6, 768, 12, 3072), large=(12, 1024, 16, 4096))


def make(
    depth: int,
    width: int,
    heads: int,
    hidden: int,
    decoder_depth: int | None = None,
    vocab_size: int = 50265,
    positions: Any = 1024,
    scaled: bool = False,
    activation: Any = "gelu",
    dropout: float = 0.1,
    attention_dropout: float = 0.0,
    hidden_dropout: float = 0.0,
    normed: bool = True,
    norm_first: bool = False,
    head: Any = None,
) -> Spec:
    """Return the spec; `norm_first` puts a norm before each branch and one after each stack
    (Pegasus).
    """
    norm = LayerNorm()
    scale = width**0.5 if scaled else 1.0
    branch = pre_norm if norm_first else post_norm
    places = (
        LearnedPositions(count=positions, offset=2) if isinstance(positions, int) else positions
    )
    attention = Attention(heads=heads, dropout=attention_dropout)
    attention_branch = branch(norm, attention, dropout=dropout)
    causal = branch(
        norm,
        Attention(heads=heads, pattern=CausalAttention(), dropout=attention_dropout),
        dropout=dropout,
    )
    feed = branch(
        norm, MLP(hidden=hidden, activation=activation, dropout=hidden_dropout), dropout=dropout
    )
    final = norm if norm_first else None
    around: dict[str, Any] = {
        "positions": places,
        "embedding_scale": scale,
        "norm": norm if normed else None,
        "dropout": dropout,
    }
    return Spec(
        width=width,
        source=Tokens(vocab_size=vocab_size, **around),
        target=SharedTokens(**around),
        encoder=Stack(
            blocks=(Block(attention=attention_branch, feedforward=feed),) * depth, norm=final
        ),
        decoder=Stack(
            blocks=(Block(attention=causal, cross_attention=attention_branch, feedforward=feed),)
            * (decoder_depth or depth),
            norm=final,
        ),
        head=head or LMHead(bias="buffer"),
    )


ATTEND = "encoder.blocks.0.attention.inner"
HIDDEN = "encoder.blocks.0.feedforward.inner"
CORE = (
    ConfigField("depth", "encoder_layers", "encoder.blocks.length", 12),
    ConfigField("decoder_depth", "decoder_layers", "decoder.blocks.length"),
    ConfigField("width", "d_model", "width", 1024),
    ConfigField(
        "heads", ("encoder_attention_heads", "decoder_attention_heads"), f"{ATTEND}.heads", 16
    ),
    ConfigField("hidden", ("encoder_ffn_dim", "decoder_ffn_dim"), f"{HIDDEN}.hidden", 4096),
    ConfigField(
        "activation", "activation_function", f"{HIDDEN}.activation", "gelu", ACTIVATION_CODEC
    ),
    ConfigField("dropout", "dropout", "source.dropout", 0.1),
    ConfigField("attention_dropout", "attention_dropout", f"{ATTEND}.dropout", 0.0),
    ConfigField("hidden_dropout", "activation_dropout", f"{HIDDEN}.dropout", 0.0),
    ConfigField("scaled", "scale_embedding", lambda m: m.source.embedding_scale != 1.0, False),
    ConfigField("std", "init_std", "init.std", 0.02),
)
FIELDS = (
    *CORE,
    ConfigField("vocab_size", "vocab_size", "source.vocab_size", 50265),
    ConfigField("positions", "max_position_embeddings", "source.positions.count", 1024),
)

NAMES = {
    "attention.inner.query": "self_attn.q_proj",
    "attention.inner.key": "self_attn.k_proj",
    "attention.inner.value": "self_attn.v_proj",
    "attention.inner.out": "self_attn.out_proj",
    "attention.after": "self_attn_layer_norm",
    "feedforward.inner.up": "fc1",
    "feedforward.inner.down": "fc2",
    "feedforward.after": "final_layer_norm",
}
CROSS = {
    "cross_attention" + o[9:]: t.replace("self_attn", "encoder_attn")
    for o, t in NAMES.items()
    if o.startswith("attention")
}
ENDS: WeightTable = (
    WeightRow("source.tokens.weight", "model.shared.weight"),
    WeightRow("head.bias", "final_logits_bias", "one_leading"),
    *(
        WeightAlias(f"{name}.weight", "model.shared.weight", "source")
        for name in ("model.encoder.embed_tokens", "model.decoder.embed_tokens", "lm_head")
    ),
)
BODY: WeightTable = (
    *ENDS,
    *layer_rows("encoder.blocks.{}", "model.encoder.layers.{}", NAMES),
    *layer_rows("decoder.blocks.{}", "model.decoder.layers.{}", NAMES | CROSS),
)
TABLE: WeightTable = (
    *BODY,
    WeightRow("source.positions.weight", "model.encoder.embed_positions.weight"),
    WeightRow("target.positions.weight", "model.decoder.embed_positions.weight"),
    *weight_and_bias("source.norm", "model.encoder.layernorm_embedding"),
    *weight_and_bias("target.norm", "model.decoder.layernorm_embedding"),
)

bart = Family(
    "bart",
    "arXiv:1910.13461",
    make,
    SIZES,
    "bart",
    FIELDS,
    TABLE,
    prefix="model.",
    decoder_start="eos",
    supported_values={
        "normalize_before": (False,),
        "normalize_embedding": (True,),
        "add_final_layer_norm": (False,),
    },
    heads={
        "BartForConditionalGeneration": lambda m, l: LMHead(bias="buffer"),
        "BartModel": lambda m, l: NoHead(),
    },
)
