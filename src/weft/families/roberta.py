"""RoBERTa: BERT trained longer, on byte-level BPE, with positions that start after the padding id
(Liu et al. 2019, arXiv:1907.11692).
"""

from typing import Any

from ..spec import NoHead, Spec
from . import bert
from .base import Codec, ConfigField, Family, size_table
from .bert import FIELDS, POOLER, body, classes, masked, spans, tags
from .weights import WeightAlias, WeightRow, WeightTable, weight_and_bias

SIZES = size_table(
    "depth width heads hidden vocab_size token_types eps offset",
    base=(12, 768, 12, 3072, 50265, 1, 1e-5, 2),
    large=(24, 1024, 16, 4096, 50265, 1, 1e-5, 2),
)


def make(offset: int = 2, positions: int = 512, rows: int | None = None, **rest: Any) -> Spec:
    """Return the spec; `rows` is the size of the position table, whose first `offset` rows are
    unused.
    """
    return bert.make(offset=offset, positions=positions if rows is None else rows - offset, **rest)


OWN = {
    "positions": ConfigField(
        "rows",
        "max_position_embeddings",
        lambda m: m.source.positions.count + m.source.positions.offset,
        512,
    ),
    "vocab_size": ConfigField("vocab_size", "vocab_size", "source.vocab_size", 50265),
}
OFFSET = ConfigField(
    "offset",
    "pad_token_id",
    "source.positions.offset",
    2,
    Codec(lambda pad: pad + 1, lambda offset: offset - 1),
)
TABLE: WeightTable = (
    *body("roberta."),
    *weight_and_bias("head.transform.dense", "roberta.pooler.dense", when="NoHead"),
    *weight_and_bias("head.transform.dense", "lm_head.dense", when="LMHead"),
    *weight_and_bias("head.transform.norm", "lm_head.layer_norm", when="LMHead"),
    WeightRow("head.bias", "lm_head.bias", only_for="LMHead"),
    WeightAlias("lm_head.decoder.weight", "roberta.embeddings.word_embeddings.weight"),
    WeightAlias("lm_head.decoder.bias", "lm_head.bias"),
    *weight_and_bias("head.transform.dense", "classifier.dense", when="ClassifierHead"),
    *weight_and_bias("head.out", "classifier.out_proj", when="ClassifierHead"),
    *weight_and_bias("head.out", "classifier", when="TokenClassifierHead"),
    *weight_and_bias("head.out", "qa_outputs", when="SpanHead"),
)


def padding(m: Any) -> dict[str, int]:
    """Return the config.json; positions start after the padding id, which is 1 in all published
    files.
    """
    pad = m.source.positions.offset - 1
    if pad < 0 or m.special_tokens.pad not in (None, pad):
        raise ValueError(
            f"positions from row {pad + 1} need the padding id {pad} in a RoBERTa file, not "
            f"{m.special_tokens.pad}; give special_tokens.pad = {pad}"
        )
    return {"pad_token_id": pad}


roberta = Family(
    "roberta",
    "arXiv:1907.11692",
    make,
    SIZES,
    "roberta",
    (*(OWN.get(f.argument, f) for f in FIELDS), OFFSET),
    TABLE,
    prefix="roberta.",
    supported_values={
        "position_embedding_type": ("absolute",),
        "is_decoder": (False,),
        "add_cross_attention": (False,),
    },
    derived_config=padding,
    heads={
        "RobertaForMaskedLM": lambda m, l: masked("gelu", m.source.norm),
        "RobertaModel": lambda m, l: NoHead(transform=POOLER),
        "RobertaForSequenceClassification": classes(POOLER),
        "RobertaForTokenClassification": tags,
        "RobertaForQuestionAnswering": spans,
    },
)
