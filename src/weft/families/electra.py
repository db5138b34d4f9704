"""ELECTRA: a discriminator that detects tokens replaced by a small generator (Clark et al. 2020,
arXiv:2003.10555).
"""

from dataclasses import replace
from typing import Any

from ..spec import HeadTransform, LayerNorm, LMHead, NoHead, Spec, TokenClassifierHead
from ..support.synonyms import suggest
from . import bert
from .base import ConfigField, Family, LabelNames, size_table
from .bert import body, classes, spans, tags
from .weights import WeightAlias, WeightRow, WeightTable, weight_and_bias

SIZES = size_table(
    "depth width heads hidden embedding",
    small=(12, 256, 4, 1024, 128),
    base=(12, 768, 12, 3072, 768),
    large=(24, 1024, 16, 4096, 1024),
)
GENERATORS = size_table(
    "depth width heads hidden embedding",
    small=(12, 256, 4, 1024, 128),
    base=(12, 256, 4, 1024, 768),
    large=(24, 256, 4, 1024, 1024),
)


def make(width: int, embedding: int, head: Any = None, **rest: Any) -> Spec:
    """The discriminator; give head=`generator_head()` for the generator."""
    activation = rest.get("activation", "gelu")
    return bert.make(
        width=width,
        embedding=None if embedding == width else embedding,
        **rest,
        head=head
        or TokenClassifierHead(num_labels=1, transform=HeadTransform(activation=activation)),
    )


def generator_head(eps: float = 1e-12) -> LMHead:
    return LMHead(bias="trained", transform=HeadTransform(norm=LayerNorm(eps=eps)))


def generator(size: str = "small", **changes: Any) -> Spec:
    """Return the published generator of a size, a quarter of the discriminator's width."""
    if size not in GENERATORS:
        raise ValueError(f"electra has no generator {size!r}; {suggest(size, list(GENERATORS))}")
    return electra(size, **{**GENERATORS[size], "head": generator_head(), **changes})


def discriminator_head(m: Any, _: LabelNames) -> TokenClassifierHead:
    return TokenClassifierHead(
        num_labels=1,
        transform=HeadTransform(activation=m.encoder.blocks[0].feedforward.inner.activation),
    )


SMALL = {"width": 256, "heads": 4, "hidden": 1024}  # transformers' defaults
TABLE: WeightTable = (
    *body("electra."),
    *weight_and_bias("source.project", "electra.embeddings_project"),
    *weight_and_bias("head.transform.dense", "generator_predictions.dense", when="LMHead"),
    *weight_and_bias("head.transform.norm", "generator_predictions.LayerNorm", when="LMHead"),
    WeightRow("head.bias", "generator_lm_head.bias", only_for="LMHead"),
    WeightAlias("generator_lm_head.weight", "electra.embeddings.word_embeddings.weight"),
    *weight_and_bias("head.out", "classifier", when="PlainTokenClassifierHead"),
    *weight_and_bias(
        "head.transform.dense", "discriminator_predictions.dense", when="TokenClassifierHead"
    ),
    *weight_and_bias(
        "head.out", "discriminator_predictions.dense_prediction", when="TokenClassifierHead"
    ),
    *weight_and_bias("head.transform.dense", "classifier.dense", when="ClassifierHead"),
    *weight_and_bias("head.out", "classifier.out_proj", when="ClassifierHead"),
    *weight_and_bias("head.out", "qa_outputs", when="SpanHead"),
)

electra = Family(
    "electra",
    "arXiv:2003.10555",
    make,
    SIZES,
    "electra",
    (
        *(replace(f, default=SMALL.get(f.argument, f.default)) for f in bert.FIELDS),
        ConfigField(
            "embedding", "embedding_size", lambda m: m.source.embedding_dim or m.width, 128
        ),
    ),
    TABLE,
    prefix="electra.",
    supported_values={
        "position_embedding_type": ("absolute",),
        "is_decoder": (False,),
        "add_cross_attention": (False,),
    },
    heads={
        "ElectraForPreTraining": discriminator_head,
        "ElectraForMaskedLM": lambda m, l: generator_head(m.source.norm.eps),
        "ElectraModel": lambda m, l: NoHead(),
        "ElectraForSequenceClassification": classes(HeadTransform()),
        "ElectraForTokenClassification": tags,
        "ElectraForQuestionAnswering": spans,
    },
)
