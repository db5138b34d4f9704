"""RoBERTa: BERT trained longer on bytes, positions counted from 2 (Liu et al. 2019, arXiv:1907.11692)."""
from typing import Any

from ..spec import Features
from ..weights import Alias, Family, Field, Row, Table, Way, both, sizes
from .bert import FIELDS, POOLER, body, classes, make, masked, spans, tags

SIZES = sizes("depth width heads hidden vocabulary segments eps offset", base=(12, 768, 12, 3072, 50265, 1, 1e-5, 2),
              large=(24, 1024, 16, 4096, 50265, 1, 1e-5, 2))
OWN = {"positions": Field("positions", "max_position_embeddings", "source.positions.count", 510, Way(lambda n: n - 2, lambda n: n + 2)),
       "vocabulary": Field("vocabulary", "vocab_size", "source.vocabulary", 50265)}
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
    """A file's positions start behind its padding id; all published ones have 1."""
    if m.special.pad not in (None, 1):
        raise ValueError(f"a RoBERTa file with positions from 2 pads with id 1, not {m.special.pad}; give special.pad = 1")
    return {"pad_token_id": 1}


roberta = Family(
    "roberta", "arXiv:1907.11692", make, SIZES, "roberta", tuple(OWN.get(f.argument, f) for f in FIELDS), TABLE, prefix="roberta.",
    only={"position_embedding_type": ("absolute",), "is_decoder": (False,), "add_cross_attention": (False,), "pad_token_id": (1,)},
    extra=padding,
    heads={"RobertaForMaskedLM": lambda m, l: masked("gelu", m.source.norm),
           "RobertaModel": lambda m, l: Features(transform=POOLER), "RobertaForSequenceClassification": classes(POOLER),
           "RobertaForTokenClassification": tags, "RobertaForQuestionAnswering": spans})
