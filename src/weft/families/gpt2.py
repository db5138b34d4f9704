"""GPT-2: pre-norm causal decoder with learned positions (Radford et al. 2019, "Language models are
unsupervised multitask learners").
"""

from typing import Any

from ..spec import (
    MLP,
    Attention,
    Block,
    CausalAttention,
    ClassifierHead,
    LayerNorm,
    LearnedPositions,
    LMHead,
    NoHead,
    NormalInit,
    Spec,
    Stack,
    Tokens,
    pre_norm,
)
from .base import ACTIVATION_CODEC, ConfigField, Family, size_table
from .weights import SkippedWeight, WeightRow, WeightTable, weight_and_bias

SIZES = size_table(
    "depth width heads",
    small=(12, 768, 12),
    medium=(24, 1024, 16),
    large=(36, 1280, 20),
    xl=(48, 1600, 25),
)


def make(
    depth: int,
    width: int,
    heads: int,
    hidden: int | None = None,
    vocab_size: int = 50257,
    positions: int = 1024,
    eps: float = 1e-5,
    activation: Any = "gelu_tanh",
    dropout: float = 0.1,
    attention_dropout: float = 0.1,
    embedding_dropout: float = 0.1,
    tied: bool = True,
    head: Any = None,
) -> Spec:
    norm = LayerNorm(eps=eps)
    block = Block(
        attention=pre_norm(
            norm,
            Attention(heads=heads, pattern=CausalAttention(), dropout=attention_dropout),
            dropout=dropout,
        ),
        feedforward=pre_norm(
            norm, MLP(hidden=hidden or 4 * width, activation=activation), dropout=dropout
        ),
    )
    return Spec(
        width=width,
        source=Tokens(
            vocab_size=vocab_size,
            positions=LearnedPositions(count=positions),
            dropout=embedding_dropout,
        ),
        decoder=Stack(blocks=(block,) * depth, norm=norm),
        head=head or LMHead(tied=tied),
    )


BLOCK = "decoder.blocks.0"
FIELDS = (
    ConfigField("depth", "n_layer", "decoder.blocks.length", 12),
    ConfigField("width", "n_embd", "width", 768),
    ConfigField("heads", "n_head", f"{BLOCK}.attention.inner.heads", 12),
    ConfigField("hidden", "n_inner", f"{BLOCK}.feedforward.inner.hidden"),
    ConfigField("vocab_size", "vocab_size", "source.vocab_size", 50257),
    ConfigField("positions", "n_positions", "source.positions.count", 1024),
    ConfigField("eps", "layer_norm_epsilon", f"{BLOCK}.attention.before.eps", 1e-5),
    ConfigField(
        "activation",
        "activation_function",
        f"{BLOCK}.feedforward.inner.activation",
        "gelu_tanh",
        ACTIVATION_CODEC,
    ),
    ConfigField("dropout", "resid_pdrop", f"{BLOCK}.attention.dropout", 0.1),
    ConfigField("attention_dropout", "attn_pdrop", f"{BLOCK}.attention.inner.dropout", 0.1),
    ConfigField("embedding_dropout", "embd_pdrop", "source.dropout", 0.1),
    ConfigField("tied", "tie_word_embeddings", lambda m: getattr(m.head, "tied", True), True),
    ConfigField("std", "initializer_range", "init.std", 0.02),
)


def body(tokens: str, positions: str) -> WeightTable:
    """Yield the rows of decoder layers, shared by GPT and GPT-2; their matrices are stored
    transposed.
    """
    ours = "decoder.blocks.{}."
    theirs = "transformer.h.{}."
    return (
        WeightRow("source.tokens.weight", f"transformer.{tokens}.weight"),
        WeightRow("source.positions.weight", f"transformer.{positions}.weight"),
        *weight_and_bias(
            tuple(ours + f"attention.inner.{n}" for n in ("query", "key", "value")),
            theirs + "attn.c_attn",
            "transposed",
        ),
        *weight_and_bias(ours + "attention.inner.out", theirs + "attn.c_proj", "transposed"),
        *weight_and_bias(ours + "feedforward.inner.up", theirs + "mlp.c_fc", "transposed"),
        *weight_and_bias(ours + "feedforward.inner.down", theirs + "mlp.c_proj", "transposed"),
        WeightRow("head.out.weight", "lm_head.weight", only_for="LMHead"),
        WeightRow("head.out.weight", "score.weight", only_for="ClassifierHead"),
        SkippedWeight(theirs + "attn.bias", "the causal mask, computed by Weft"),
        SkippedWeight(theirs + "attn.masked_bias", "a constant"),
    )


TABLE: WeightTable = (
    *body("wte", "wpe"),
    *weight_and_bias("decoder.blocks.{}.attention.before", "transformer.h.{}.ln_1"),
    *weight_and_bias("decoder.blocks.{}.feedforward.before", "transformer.h.{}.ln_2"),
    *weight_and_bias("decoder.norm", "transformer.ln_f"),
)


def free_classes(spec: Spec, l: Any) -> ClassifierHead:
    """Return a head with one score per class from the last token, as the authors of GPT fine-
    tune.
    """
    return ClassifierHead(num_labels=l.outputs, labels=l.labels, pooling="last", bias=False)


gpt2 = Family(
    "gpt2",
    "Radford et al. 2019",
    make,
    SIZES,
    "gpt2",
    FIELDS,
    TABLE,
    prefix="transformer.",
    init=NormalInit(scale_by_depth=True),
    supported_values={
        "scale_attn_weights": (True,),
        "scale_attn_by_inverse_layer_idx": (False,),
        "add_cross_attention": (False,),
    },
    heads={
        "GPT2LMHeadModel": lambda m, l: LMHead(tied=getattr(m.head, "tied", True)),
        "GPT2Model": lambda m, l: NoHead(),
        "GPT2ForSequenceClassification": free_classes,
    },
)
