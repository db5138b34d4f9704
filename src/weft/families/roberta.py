"""RoBERTa: BERT trained longer on bytes, positions counted from after the padding id (Liu et al. 2019, arXiv:1907.11692)."""
from typing import Any

from ..spec import Features, Model
from ..weights import Alias, Family, Field, Row, Table, Way, both, sizes
from . import bert
from .bert import FIELDS, POOLER, body, classes, masked, spans, tags

SIZES = sizes("depth width heads hidden vocabulary segments eps offset", base=(12, 768, 12, 3072, 50265, 1, 1e-5, 2),
              large=(24, 1024, 16, 4096, 50265, 1, 1e-5, 2))


def make(offset: int = 2, positions: int = 512, rows: int | None = None, **rest: Any) -> Model:
    """`rows` of the position table, of which the first `offset` belong to no position."""
    return bert.make(offset=offset, positions=positions if rows is None else rows - offset, **rest)


OWN = {"positions": Field("rows", "max_position_embeddings", lambda m: m.source.positions.count + m.source.positions.offset, 512),
       "vocabulary": Field("vocabulary", "vocab_size", "source.vocabulary", 50265)}
OFFSET = Field("offset", "pad_token_id", "source.positions.offset", 2, Way(lambda pad: pad + 1, lambda offset: offset - 1))
TABLE: Table = (
    *body("roberta."),
    *both("head.transform.dense", "roberta.pooler.dense", when="Features"),
    *both("head.transform.dense", "lm_head.dense", when="Vocabulary"),
    *both("head.transform.norm", "lm_head.layer_norm", when="Vocabulary"),
    Row("head.bias", "lm_head.bias", when="Vocabulary"),
    Alias("lm_head.decoder.weight", "roberta.embeddings.word_embeddings.weight"), Alias("lm_head.decoder.bias", "lm_head.bias"),
    *both("head.transform.dense", "classifier.dense", when="Classes"), *both("head.out", "classifier.out_proj", when="Classes"),
    *both("head.out", "classifier", when="Tags"), *both("head.out", "qa_outputs", when="Spans"))


def padding(m: Any) -> dict[str, int]:
    """A file's positions start after its padding id; all published ones have 1."""
    pad = m.source.positions.offset - 1
    if pad < 0 or m.special.pad not in (None, pad):
        raise ValueError(f"a RoBERTa file with positions from {pad + 1} pads with id {pad}, not {m.special.pad}; give special.pad = {pad}")
    return {"pad_token_id": pad}


roberta = Family(
    "roberta", "arXiv:1907.11692", make, SIZES, "roberta", (*(OWN.get(f.argument, f) for f in FIELDS), OFFSET), TABLE, prefix="roberta.",
    only={"position_embedding_type": ("absolute",), "is_decoder": (False,), "add_cross_attention": (False,)},
    extra=padding,
    heads={"RobertaForMaskedLM": lambda m, l: masked("gelu", m.source.norm),
           "RobertaModel": lambda m, l: Features(transform=POOLER), "RobertaForSequenceClassification": classes(POOLER),
           "RobertaForTokenClassification": tags, "RobertaForQuestionAnswering": spans})
