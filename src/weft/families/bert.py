"""BERT: post-norm bidirectional encoder (Devlin et al. 2018, arXiv:1810.04805)."""
from typing import Any

from ..spec import (
    Attention, Block, Classes, Dense, Features, LayerNorm, Learned, Model, Spans, Stack, Tags, Tokens, Transform,
    Vocabulary, post)
from ..weights import ACTIVATION, Alias, Family, Field, Labels, Row, Skip, Table, both, layer, sizes

SIZES = sizes("depth width heads hidden", base=(12, 768, 12, 3072), large=(24, 1024, 16, 4096),
              tiny=(2, 128, 2, 512), mini=(4, 256, 4, 1024), small=(4, 512, 8, 2048), medium=(8, 512, 8, 2048))  # arXiv:1908.08962


def make(depth: int, width: int, heads: int, hidden: int, vocabulary: int = 30522, positions: int = 512, offset: int = 0,
         segments: int = 2, eps: float = 1e-12, activation: Any = "gelu", dropout: float = 0.1, attention_dropout: float = 0.1,
         head: Any = None, embedding: int | None = None) -> Model:
    norm = LayerNorm(eps=eps)
    block = Block(attention=post(norm, Attention(heads=heads, dropout=attention_dropout), dropout=dropout),
                  feedforward=post(norm, Dense(hidden=hidden, activation=activation), dropout=dropout))
    return Model(width=width, encoder=Stack(blocks=(block,) * depth),
                 source=Tokens(vocabulary=vocabulary, positions=Learned(count=positions, offset=offset), segments=segments,
                               norm=norm, dropout=dropout, width=embedding),
                 head=head or masked(activation, norm))


def masked(activation: Any, norm: Any) -> Vocabulary:
    return Vocabulary(bias="trained", transform=Transform(activation=activation, norm=norm))


def own_masked(m: Any, _: Labels) -> Vocabulary:
    return masked(m.encoder.blocks[0].feedforward.inner.activation, m.source.norm)


def classes(pooled: Transform | None, outputs: int | None = None) -> Any:
    return lambda m, l: Classes(outputs=outputs or l.outputs, transform=pooled, dropout=m.encoder.blocks[0].feedforward.dropout,
                                labels=None if outputs else l.labels)


def tags(m: Any, l: Labels) -> Tags:
    return Tags(outputs=l.outputs, labels=l.labels, dropout=m.encoder.blocks[0].feedforward.dropout)


def spans(m: Any, l: Labels) -> Spans:
    return Spans()


POOLER = Transform(activation="tanh")
FIELDS = (
    Field("depth", "num_hidden_layers", "encoder.blocks.length", 12),
    Field("width", "hidden_size", "width", 768),
    Field("heads", "num_attention_heads", "encoder.blocks.0.attention.inner.heads", 12),
    Field("hidden", "intermediate_size", "encoder.blocks.0.feedforward.inner.hidden", 3072),
    Field("vocabulary", "vocab_size", "source.vocabulary", 30522),
    Field("positions", "max_position_embeddings", "source.positions.count", 512),
    Field("segments", "type_vocab_size", "source.segments", 2),
    Field("eps", "layer_norm_eps", "source.norm.eps", 1e-12),
    Field("activation", "hidden_act", "encoder.blocks.0.feedforward.inner.activation", "gelu", ACTIVATION),
    Field("dropout", "hidden_dropout_prob", "source.dropout", 0.1),
    Field("attention_dropout", "attention_probs_dropout_prob", "encoder.blocks.0.attention.inner.dropout", 0.1),
    Field("std", "initializer_range", "start.std", 0.02))

LAYER = {"attention.inner.query": "attention.self.query", "attention.inner.key": "attention.self.key",
         "attention.inner.value": "attention.self.value", "attention.inner.out": "attention.output.dense",
         "attention.after": "attention.output.LayerNorm", "feedforward.inner.up": "intermediate.dense",
         "feedforward.inner.down": "output.dense", "feedforward.after": "output.LayerNorm"}


def body(prefix: str) -> Table:
    """Embeddings and encoder, as BERT, RoBERTa and ELECTRA name them."""
    return (Row("source.tokens.weight", f"{prefix}embeddings.word_embeddings.weight"),
            Row("source.positions.weight", f"{prefix}embeddings.position_embeddings.weight"),
            Row("source.segments.weight", f"{prefix}embeddings.token_type_embeddings.weight"),
            *both("source.norm", f"{prefix}embeddings.LayerNorm"),
            *layer("encoder.blocks.{}", prefix + "encoder.layer.{}", LAYER),
            Skip(f"{prefix}embeddings.position_ids", "counted, not stored"))


TABLE: Table = (
    *body("bert."),
    *both("head.transform.dense", "bert.pooler.dense", when="Features Classes"),
    *both("head.transform.dense", "cls.predictions.transform.dense", when="Vocabulary"),
    *both("head.transform.norm", "cls.predictions.transform.LayerNorm", when="Vocabulary"),
    Row("head.bias", "cls.predictions.bias", when="Vocabulary"),
    *both("head.out", "classifier", when="Classes Tags"), *both("head.out", "qa_outputs", when="Spans"),
    Alias("cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"),
    Alias("cls.predictions.decoder.bias", "cls.predictions.bias"),
    Skip("cls.seq_relationship.weight", "next-sentence head: its objective owns one"),
    Skip("cls.seq_relationship.bias", "next-sentence head: its objective owns one"))

bert = Family(
    "bert", "arXiv:1810.04805", make, SIZES, "bert", FIELDS, TABLE, prefix="bert.",
    only={"position_embedding_type": ("absolute",), "is_decoder": (False,), "add_cross_attention": (False,)},
    heads={"BertForMaskedLM": own_masked, "BertForPreTraining": own_masked, "BertModel": lambda m, l: Features(transform=POOLER),
           "BertForSequenceClassification": classes(POOLER), "BertForMultipleChoice": classes(POOLER, 1),
           "BertForTokenClassification": tags, "BertForQuestionAnswering": spans})
