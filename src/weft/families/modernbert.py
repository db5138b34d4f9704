"""ModernBERT: pre-norm, gated, rotary, two windowed layers after each global one (Warner et al. 2024, arXiv:2412.13663)."""
from typing import Any

from ..spec import (
    Attention, Block, Branch, Classes, Features, Full, Gated, LayerNorm, Model, Normal, Rotary, Stack, Tags, Tokens,
    Transform, Vocabulary, Window, pre)
from ..weights import ACTIVATION, Alias, Family, Field, Row, Table, Way, both, sizes

SIZES = sizes("depth width heads hidden", base=(22, 768, 12, 1152), large=(28, 1024, 16, 2624))


def make(depth: int, width: int, heads: int, hidden: int, vocabulary: int = 50368, window: int = 64, every: int = 3,
         theta: float = 160_000.0, near_theta: float = 10_000.0, eps: float = 1e-5, activation: Any = "gelu", head: Any = None) -> Model:
    norm = LayerNorm(eps=eps, bias=False)

    def block(i: int) -> Block:
        near = i % every != 0
        look = Attention(heads=heads, bias=False, out_bias=False, rotary=Rotary(theta=near_theta if near else theta),
                         pattern=Window(before=window, after=window) if near else Full())
        return Block(attention=Branch(before=norm if i else None, inner=look),   # the first norm is the embedding's
                     feedforward=pre(norm, Gated(hidden=hidden, activation=activation, bias=False)))

    return Model(width=width, source=Tokens(vocabulary=vocabulary, norm=norm),
                 encoder=Stack(blocks=tuple(block(i) for i in range(depth)), norm=norm),
                 head=head or Vocabulary(bias="trained", transform=transform(norm)))


def transform(norm: Any) -> Transform:
    return Transform(bias=False, norm=norm)


def every(m: Model) -> int:
    assert isinstance(m.encoder, Stack)
    whole = [i for i, b in enumerate(m.encoder.blocks) if b.attention.inner.pattern == Full()]  # type: ignore[union-attr]
    return whole[1] if len(whole) > 1 else len(m.encoder.blocks)


def layer_types(depth: int, every: int) -> list[str]:
    return ["sliding_attention" if i % every else "full_attention" for i in range(depth)]


def read_every(found: int | list[str]) -> int:
    """Files list the kind of every layer; older ones say every how many sees all."""
    if isinstance(found, int):
        return found
    every = ([i for i, kind in enumerate(found) if kind == "full_attention"][1:] or [len(found)])[0]
    if found != layer_types(len(found), every):
        raise ValueError(f"{found}: Weft knows a full_attention layer first and then at even distances")
    return every


FIRST, NEAR = "encoder.blocks.0.attention.inner", "encoder.blocks.1.attention.inner"
FIELDS = (
    Field("depth", "num_hidden_layers", "encoder.blocks.length", 22), Field("width", "hidden_size", "width", 768),
    Field("heads", "num_attention_heads", f"{FIRST}.heads", 12),
    Field("hidden", "intermediate_size", "encoder.blocks.0.feedforward.inner.hidden", 1152),
    Field("vocabulary", "vocab_size", "source.vocabulary", 50368),
    Field("window", "local_attention", f"{NEAR}.pattern.before", 64, Way(lambda n: n // 2, lambda n: 2 * n)),
    Field("every", "layer_types", every, 3, Way(read_every, int), legacy=("global_attn_every_n_layers",)),
    Field("theta", ("rope_parameters.full_attention.rope_theta", "global_rope_theta"), f"{FIRST}.rotary.theta", 160_000.0),
    Field("near_theta", ("rope_parameters.sliding_attention.rope_theta", "local_rope_theta"), f"{NEAR}.rotary.theta", 10_000.0),
    Field("eps", "norm_eps", "source.norm.eps", 1e-5),
    Field("activation", "hidden_activation", "encoder.blocks.0.feedforward.inner.activation", "gelu", ACTIVATION))

OURS, THEIRS = "encoder.blocks.{}.", "model.layers.{}."
TABLE: Table = (
    Row("source.tokens.weight", "model.embeddings.tok_embeddings.weight"), Row("source.norm.weight", "model.embeddings.norm.weight"),
    Row(OURS + "attention.before.weight", THEIRS + "attn_norm.weight"),
    Row(tuple(OURS + f"attention.inner.{n}.weight" for n in ("query", "key", "value")), THEIRS + "attn.Wqkv.weight"),
    Row(OURS + "attention.inner.out.weight", THEIRS + "attn.Wo.weight"),
    Row(OURS + "feedforward.before.weight", THEIRS + "mlp_norm.weight"),
    Row((OURS + "feedforward.inner.gate.weight", OURS + "feedforward.inner.up.weight"), THEIRS + "mlp.Wi.weight"),
    Row(OURS + "feedforward.inner.down.weight", THEIRS + "mlp.Wo.weight"), Row("encoder.norm.weight", "model.final_norm.weight"),
    Row("head.transform.dense.weight", "head.dense.weight"), Row("head.transform.norm.weight", "head.norm.weight"),
    Row("head.bias", "decoder.bias", when="Vocabulary"), Alias("decoder.weight", "model.embeddings.tok_embeddings.weight"),
    *both("head.out", "classifier", when="Classes Tags"))

modernbert = Family(
    "modernbert", "arXiv:2412.13663", make, SIZES, "modernbert", FIELDS, TABLE, prefix="model.", context="max_position_embeddings",
    start=Normal(cut=2.0, by_depth=True), extra=lambda m: {"layer_types": layer_types(len(m.encoder.blocks), every(m)),
                                                           "global_attn_every_n_layers": every(m)},
    only={"attention_bias": (False,), "mlp_bias": (False,), "norm_bias": (False,), "classifier_bias": (False,), "decoder_bias": (True,),
          "classifier_pooling": ("cls",), "classifier_activation": ("gelu",), "tie_word_embeddings": (True,),
          "rope_parameters.full_attention.rope_type": ("default",), "rope_parameters.sliding_attention.rope_type": ("default",)},
    heads={"ModernBertForMaskedLM": lambda m, l: Vocabulary(bias="trained", transform=transform(m.source.norm)),
           "ModernBertModel": lambda m, l: Features(),
           "ModernBertForSequenceClassification": lambda m, l: Classes(
               outputs=l.outputs, labels=l.labels, transform=transform(m.source.norm)),
           "ModernBertForTokenClassification": lambda m, l: Tags(outputs=l.outputs, labels=l.labels, transform=transform(m.source.norm))})
