"""BERT: post-norm bidirectional encoder (Devlin et al. 2018, arXiv:1810.04805)."""

from typing import Any

from ..spec import (
    MLP,
    Attention,
    Block,
    ClassifierHead,
    HeadTransform,
    LayerNorm,
    LearnedPositions,
    LMHead,
    NoHead,
    SpanHead,
    Spec,
    Stack,
    TokenClassifierHead,
    Tokens,
    post_norm,
)
from .base import ACTIVATION_CODEC, ConfigField, Family, LabelNames, size_table
from .weights import SkippedWeight, WeightAlias, WeightRow, WeightTable, layer_rows, weight_and_bias

# arXiv:1908.08962
SIZES = size_table(
    "depth width heads hidden",
    base=(12, 768, 12, 3072),
    large=(24, 1024, 16, 4096),
    tiny=(2, 128, 2, 512),
    mini=(4, 256, 4, 1024),
    small=(4, 512, 8, 2048),
    medium=(8, 512, 8, 2048),
)


def make(
    depth: int,
    width: int,
    heads: int,
    hidden: int,
    vocab_size: int = 30522,
    positions: int = 512,
    offset: int = 0,
    token_types: int = 2,
    eps: float = 1e-12,
    activation: Any = "gelu",
    dropout: float = 0.1,
    attention_dropout: float = 0.1,
    head: Any = None,
    embedding: int | None = None,
) -> Spec:
    norm = LayerNorm(eps=eps)
    block = Block(
        attention=post_norm(
            norm, Attention(heads=heads, dropout=attention_dropout), dropout=dropout
        ),
        feedforward=post_norm(norm, MLP(hidden=hidden, activation=activation), dropout=dropout),
    )
    return Spec(
        width=width,
        encoder=Stack(blocks=(block,) * depth),
        source=Tokens(
            vocab_size=vocab_size,
            positions=LearnedPositions(count=positions, offset=offset),
            token_types=token_types,
            norm=norm,
            dropout=dropout,
            embedding_dim=embedding,
        ),
        head=head or masked(activation, norm),
    )


def masked(activation: Any, norm: Any) -> LMHead:
    return LMHead(bias="trained", transform=HeadTransform(activation=activation, norm=norm))


def own_masked(m: Any, _: LabelNames) -> LMHead:
    return masked(m.encoder.blocks[0].feedforward.inner.activation, m.source.norm)


def classes(pooled: HeadTransform | None, outputs: int | None = None) -> Any:
    return lambda m, l: ClassifierHead(
        num_labels=outputs or l.outputs,
        transform=pooled,
        dropout=m.encoder.blocks[0].feedforward.dropout,
        labels=None if outputs else l.labels,
    )


def tags(m: Any, l: LabelNames) -> TokenClassifierHead:
    return TokenClassifierHead(
        num_labels=l.outputs, labels=l.labels, dropout=m.encoder.blocks[0].feedforward.dropout
    )


def spans(m: Any, l: LabelNames) -> SpanHead:
    return SpanHead()


POOLER = HeadTransform(activation="tanh")
FIELDS = (
    ConfigField("depth", "num_hidden_layers", "encoder.blocks.length", 12),
    ConfigField("width", "hidden_size", "width", 768),
    ConfigField("heads", "num_attention_heads", "encoder.blocks.0.attention.inner.heads", 12),
    ConfigField("hidden", "intermediate_size", "encoder.blocks.0.feedforward.inner.hidden", 3072),
    ConfigField("vocab_size", "vocab_size", "source.vocab_size", 30522),
    ConfigField("positions", "max_position_embeddings", "source.positions.count", 512),
    ConfigField("token_types", "type_vocab_size", "source.token_types", 2),
    ConfigField("eps", "layer_norm_eps", "source.norm.eps", 1e-12),
    ConfigField(
        "activation",
        "hidden_act",
        "encoder.blocks.0.feedforward.inner.activation",
        "gelu",
        ACTIVATION_CODEC,
    ),
    ConfigField("dropout", "hidden_dropout_prob", "source.dropout", 0.1),
    ConfigField(
        "attention_dropout",
        "attention_probs_dropout_prob",
        "encoder.blocks.0.attention.inner.dropout",
        0.1,
    ),
    ConfigField("std", "initializer_range", "init.std", 0.02),
)

LAYER = {
    "attention.inner.query": "attention.self.query",
    "attention.inner.key": "attention.self.key",
    "attention.inner.value": "attention.self.value",
    "attention.inner.out": "attention.output.dense",
    "attention.after": "attention.output.LayerNorm",
    "feedforward.inner.up": "intermediate.dense",
    "feedforward.inner.down": "output.dense",
    "feedforward.after": "output.LayerNorm",
}


def body(prefix: str) -> WeightTable:
    """Yield the rows of embeddings and encoder, shared by BERT, RoBERTa and ELECTRA."""
    return (
        WeightRow("source.tokens.weight", f"{prefix}embeddings.word_embeddings.weight"),
        WeightRow("source.positions.weight", f"{prefix}embeddings.position_embeddings.weight"),
        WeightRow("source.segments.weight", f"{prefix}embeddings.token_type_embeddings.weight"),
        *weight_and_bias("source.norm", f"{prefix}embeddings.LayerNorm"),
        *layer_rows("encoder.blocks.{}", prefix + "encoder.layer.{}", LAYER),
        SkippedWeight(f"{prefix}embeddings.position_ids", "constant positions, computed by Weft"),
    )


TABLE: WeightTable = (
    *body("bert."),
    *weight_and_bias("head.transform.dense", "bert.pooler.dense", when="NoHead ClassifierHead"),
    *weight_and_bias("head.transform.dense", "cls.predictions.transform.dense", when="LMHead"),
    *weight_and_bias("head.transform.norm", "cls.predictions.transform.LayerNorm", when="LMHead"),
    WeightRow("head.bias", "cls.predictions.bias", only_for="LMHead"),
    *weight_and_bias("head.out", "classifier", when="ClassifierHead TokenClassifierHead"),
    *weight_and_bias("head.out", "qa_outputs", when="SpanHead"),
    WeightAlias("cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"),
    WeightAlias("cls.predictions.decoder.bias", "cls.predictions.bias"),
    SkippedWeight("cls.seq_relationship.weight", "next-sentence head, which belongs to the task"),
    SkippedWeight("cls.seq_relationship.bias", "next-sentence head, which belongs to the task"),
)

bert = Family(
    "bert",
    "arXiv:1810.04805",
    make,
    SIZES,
    "bert",
    FIELDS,
    TABLE,
    prefix="bert.",
    supported_values={
        "position_embedding_type": ("absolute",),
        "is_decoder": (False,),
        "add_cross_attention": (False,),
    },
    heads={
        "BertForMaskedLM": own_masked,
        "BertForPreTraining": own_masked,
        "BertModel": lambda m, l: NoHead(transform=POOLER),
        "BertForSequenceClassification": classes(POOLER),
        "BertForMultipleChoice": classes(POOLER, 1),
        "BertForTokenClassification": tags,
        "BertForQuestionAnswering": spans,
    },
)
