"""BLOOM: pre-norm causal decoder with ALiBi and a norm on its embeddings (BigScience 2022, arXiv:2211.05100)."""
from typing import Any

from ..spec import Alibi, Attention, Block, Causal, Dense, Features, LayerNorm, Model, Stack, Tokens, Vocabulary, pre
from ..weights import Family, Field, Row, Table, both, sizes
from .gpt2 import free_classes

SIZES = sizes("depth width heads", _560m=(24, 1024, 16), _1b1=(24, 1536, 16), _1b7=(24, 2048, 16), _3b=(30, 2560, 32),
              _7b1=(30, 4096, 32), _176b=(70, 14336, 112))


def make(depth: int, width: int, heads: int, vocabulary: int = 250880, eps: float = 1e-5, dropout: float = 0.0,
         attention_dropout: float = 0.0, head: Any = None) -> Model:
    norm = LayerNorm(eps=eps)
    block = Block(attention=pre(norm, Attention(heads=heads, pattern=Causal(), dropout=attention_dropout), dropout=dropout),
                  feedforward=pre(norm, Dense(hidden=4 * width, activation="gelu_tanh"), dropout=dropout))
    return Model(width=width, source=Tokens(vocabulary=vocabulary, norm=norm),
                 decoder=Stack(blocks=(block,) * depth, norm=norm, score=Alibi()), head=head or Vocabulary())


FIELDS = (
    Field("depth", ("n_layer", "num_hidden_layers"), "decoder.blocks.length", 2), Field("width", ("hidden_size", "n_embed"), "width", 64),
    Field("heads", ("n_head", "num_attention_heads"), "decoder.blocks.0.attention.inner.heads", 8),
    Field("vocabulary", "vocab_size", "source.vocabulary", 250880), Field("eps", "layer_norm_epsilon", "source.norm.eps", 1e-5),
    Field("dropout", "hidden_dropout", "decoder.blocks.0.attention.dropout", 0.0),
    Field("attention_dropout", "attention_dropout", "decoder.blocks.0.attention.inner.dropout", 0.0),
    Field("std", "initializer_range", "start.std", 0.02))

OURS, THEIRS = "decoder.blocks.{}.", "transformer.h.{}."
TABLE: Table = (
    Row("source.tokens.weight", "transformer.word_embeddings.weight"), *both("source.norm", "transformer.word_embeddings_layernorm"),
    *both(OURS + "attention.before", THEIRS + "input_layernorm"), *both(OURS + "feedforward.before", THEIRS + "post_attention_layernorm"),
    *both(tuple(OURS + f"attention.inner.{n}" for n in ("query", "key", "value")), THEIRS + "self_attention.query_key_value", "by_head"),
    *both(OURS + "attention.inner.out", THEIRS + "self_attention.dense"),
    *both(OURS + "feedforward.inner.up", THEIRS + "mlp.dense_h_to_4h"), *both(OURS + "feedforward.inner.down",
        THEIRS + "mlp.dense_4h_to_h"),
    *both("decoder.norm", "transformer.ln_f"), Row("head.out.weight", "lm_head.weight", when="Vocabulary"),
    Row("head.out.weight", "score.weight", when="Classes"))

bloom = Family("bloom", "arXiv:2211.05100", make, SIZES, "bloom", FIELDS, TABLE, prefix="transformer.",
               only={"apply_residual_connection_post_layernorm": (False,)},
               heads={"BloomForCausalLM": lambda m, l: Vocabulary(), "BloomModel": lambda m, l: Features(),
                      "BloomForSequenceClassification": free_classes})
