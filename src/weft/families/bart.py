"""BART: post-norm encoder-decoder with learned positions from 2 (Lewis et al. 2019, arXiv:1910.13461)."""
from typing import Any

from ..spec import Attention, Block, Causal, Dense, Features, LayerNorm, Learned, Model, Shared, Stack, Tokens, Vocabulary, post, pre
from ..weights import ACTIVATION, Alias, Family, Field, Row, Table, both, layer, sizes

SIZES = sizes("depth width heads hidden", base=(6, 768, 12, 3072), large=(12, 1024, 16, 4096))


def make(depth: int, width: int, heads: int, hidden: int, decoder_depth: int | None = None, vocabulary: int = 50265, positions: Any = 1024,
         scaled: bool = False, activation: Any = "gelu", dropout: float = 0.1, attention_dropout: float = 0.0, hidden_dropout: float = 0.0,
         normed: bool = True, pre_norm: bool = False, head: Any = None) -> Model:
    """`pre_norm` puts the norms before each branch, and one after each stack (Pegasus)."""
    norm, scale, branch = LayerNorm(), width ** 0.5 if scaled else 1.0, pre if pre_norm else post
    places = Learned(count=positions, offset=2) if isinstance(positions, int) else positions
    see = Attention(heads=heads, dropout=attention_dropout)
    look = branch(norm, see, dropout=dropout)
    causal = branch(norm, Attention(heads=heads, pattern=Causal(), dropout=attention_dropout), dropout=dropout)
    feed = branch(norm, Dense(hidden=hidden, activation=activation, dropout=hidden_dropout), dropout=dropout)
    final = norm if pre_norm else None
    around: dict[str, Any] = {"positions": places, "scale": scale, "norm": norm if normed else None, "dropout": dropout}
    return Model(width=width, source=Tokens(vocabulary=vocabulary, **around), target=Shared(**around),
                 encoder=Stack(blocks=(Block(attention=look, feedforward=feed),) * depth, norm=final),
                 decoder=Stack(blocks=(Block(attention=causal, cross=look, feedforward=feed),) * (decoder_depth or depth), norm=final),
                 head=head or Vocabulary(bias="stored"))


LOOK, HIDDEN = "encoder.blocks.0.attention.inner", "encoder.blocks.0.feedforward.inner"
CORE = (
    Field("depth", "encoder_layers", "encoder.blocks.length", 12), Field("decoder_depth", "decoder_layers", "decoder.blocks.length"),
    Field("width", "d_model", "width", 1024), Field("heads", ("encoder_attention_heads", "decoder_attention_heads"), f"{LOOK}.heads", 16),
    Field("hidden", ("encoder_ffn_dim", "decoder_ffn_dim"), f"{HIDDEN}.hidden", 4096),
    Field("activation", "activation_function", f"{HIDDEN}.activation", "gelu", ACTIVATION),
    Field("dropout", "dropout", "source.dropout", 0.1), Field("attention_dropout", "attention_dropout", f"{LOOK}.dropout", 0.0),
    Field("hidden_dropout", "activation_dropout", f"{HIDDEN}.dropout", 0.0),
    Field("scaled", "scale_embedding", lambda m: m.source.scale != 1.0, False), Field("std", "init_std", "start.std", 0.02))
FIELDS = (*CORE, Field("vocabulary", "vocab_size", "source.vocabulary", 50265),
          Field("positions", "max_position_embeddings", "source.positions.count", 1024))

NAMES = {"attention.inner.query": "self_attn.q_proj", "attention.inner.key": "self_attn.k_proj",
    "attention.inner.value": "self_attn.v_proj",
         "attention.inner.out": "self_attn.out_proj", "attention.after": "self_attn_layer_norm", "feedforward.inner.up": "fc1",
         "feedforward.inner.down": "fc2", "feedforward.after": "final_layer_norm"}
CROSS = {"cross" + o[9:]: t.replace("self_attn", "encoder_attn") for o, t in NAMES.items() if o.startswith("attention")}
ENDS: Table = (
    Row("source.tokens.weight", "model.shared.weight"), Row("head.bias", "final_logits_bias", "one_leading"),
    *(Alias(f"{name}.weight", "model.shared.weight", "source")
      for name in ("model.encoder.embed_tokens", "model.decoder.embed_tokens", "lm_head")))
BODY: Table = (*ENDS, *layer("encoder.blocks.{}", "model.encoder.layers.{}", NAMES),
               *layer("decoder.blocks.{}", "model.decoder.layers.{}", NAMES | CROSS))
TABLE: Table = (
    *BODY, Row("source.positions.weight", "model.encoder.embed_positions.weight"),
    Row("target.positions.weight", "model.decoder.embed_positions.weight"),
    *both("source.norm", "model.encoder.layernorm_embedding"), *both("target.norm", "model.decoder.layernorm_embedding"))

bart = Family("bart", "arXiv:1910.13461", make, SIZES, "bart", FIELDS, TABLE, prefix="model.",
              only={"normalize_before": (False,), "normalize_embedding": (True,), "add_final_layer_norm": (False,)},
              heads={"BartForConditionalGeneration": lambda m, l: Vocabulary(bias="stored"), "BartModel": lambda m, l: Features()})
