"""ELECTRA: a generator fills masks, a discriminator finds its work; a narrow token table (Clark et al. 2020, arXiv:2003.10555)."""
from dataclasses import replace
from typing import Any

from ..spec import Features, LayerNorm, Model, Tags, Transform, Vocabulary
from ..values import suggest
from ..weights import Alias, Family, Field, Labels, Row, Table, both, sizes
from . import bert
from .bert import body, classes, spans, tags

SIZES = sizes("depth width heads hidden embedding", small=(12, 256, 4, 1024, 128), base=(12, 768, 12, 3072, 768),
              large=(24, 1024, 16, 4096, 1024))
GENERATORS = sizes("depth width heads hidden embedding", small=(12, 256, 4, 1024, 128), base=(12, 256, 4, 1024, 768),
                   large=(24, 256, 4, 1024, 1024))


def make(width: int, embedding: int, head: Any = None, **rest: Any) -> Model:
    """The discriminator; give head=`generator_head()` for the generator."""
    activation = rest.get("activation", "gelu")
    return bert.make(width=width, embedding=None if embedding == width else embedding, **rest,
                     head=head or Tags(outputs=1, transform=Transform(activation=activation)))


def generator_head(eps: float = 1e-12) -> Vocabulary:
    return Vocabulary(bias="trained", transform=Transform(norm=LayerNorm(eps=eps)))


def generator(size: str = "small", **changes: Any) -> Model:
    """The published generator of a size: a quarter as wide."""
    if size not in GENERATORS:
        raise ValueError(f"electra has no generator {size!r}; {suggest(size, list(GENERATORS))}")
    return electra(size, **{**GENERATORS[size], "head": generator_head(), **changes})


def replaced(m: Any, _: Labels) -> Tags:
    return Tags(outputs=1, transform=Transform(activation=m.encoder.blocks[0].feedforward.inner.activation))


SMALL = {"width": 256, "heads": 4, "hidden": 1024}             # transformers' defaults
TABLE: Table = (
    *body("electra."), *both("source.project", "electra.embeddings_project"),
    *both("head.transform.dense", "generator_predictions.dense", when="Vocabulary"),
    *both("head.transform.norm", "generator_predictions.LayerNorm", when="Vocabulary"),
    Row("head.bias", "generator_lm_head.bias", when="Vocabulary"),
    Alias("generator_lm_head.weight", "electra.embeddings.word_embeddings.weight"),
    *both("head.out", "classifier", when="PlainTags"),
    *both("head.transform.dense", "discriminator_predictions.dense", when="Tags"),
    *both("head.out", "discriminator_predictions.dense_prediction", when="Tags"),
    *both("head.transform.dense", "classifier.dense", when="Classes"), *both("head.out", "classifier.out_proj", when="Classes"),
    *both("head.out", "qa_outputs", when="Spans"))

electra = Family(
    "electra", "arXiv:2003.10555", make, SIZES, "electra",
    (*(replace(f, default=SMALL.get(f.argument, f.default)) for f in bert.FIELDS),
     Field("embedding", "embedding_size", lambda m: m.source.width or m.width, 128)), TABLE, prefix="electra.",
    only={"position_embedding_type": ("absolute",), "is_decoder": (False,), "add_cross_attention": (False,)},
    heads={"ElectraForPreTraining": replaced, "ElectraForMaskedLM": lambda m, l: generator_head(m.source.norm.eps),
           "ElectraModel": lambda m, l: Features(), "ElectraForSequenceClassification": classes(Transform()),
           "ElectraForTokenClassification": tags, "ElectraForQuestionAnswering": spans})
