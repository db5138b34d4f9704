"""Pegasus: Marian with norms before each branch and after each stack (Zhang et al. 2019,
arXiv:1912.08777).
"""

from typing import Any

from ..spec import LMHead, NoHead, SinusoidalPositions, Spec
from . import bart
from .bart import CORE, CROSS, ENDS, NAMES
from .base import ConfigField, Family, size_table
from .marian import SINUSOIDS
from .weights import WeightTable, layer_rows, weight_and_bias

SIZES = size_table(
    "depth width heads hidden vocab_size",
    large=(16, 1024, 16, 4096, 96103),
    base=(12, 768, 12, 3072, 96103),
)


def make(
    vocab_size: int = 50265, activation: Any = "relu", scaled: bool = True, **rest: Any
) -> Spec:
    return bart.make(
        vocab_size=vocab_size,
        activation=activation,
        scaled=scaled,
        positions=SinusoidalPositions(layout="halves"),
        normed=False,
        norm_first=True,
        **rest,
    )


def before(names: dict[str, str]) -> dict[str, str]:
    return {ours.replace(".after", ".before"): theirs for ours, theirs in names.items()}


TABLE: WeightTable = (
    *ENDS,
    *SINUSOIDS,
    *layer_rows("encoder.blocks.{}", "model.encoder.layers.{}", before(NAMES)),
    *layer_rows("decoder.blocks.{}", "model.decoder.layers.{}", before(NAMES | CROSS)),
    *weight_and_bias("encoder.norm", "model.encoder.layer_norm"),
    *weight_and_bias("decoder.norm", "model.decoder.layer_norm"),
)

pegasus = Family(
    "pegasus",
    "arXiv:1912.08777",
    make,
    SIZES,
    "pegasus",
    (*CORE, ConfigField("vocab_size", "vocab_size", "source.vocab_size", 50265)),
    TABLE,
    prefix="model.",
    context_length_key="max_position_embeddings",
    supported_values={
        "normalize_before": (True,),
        "normalize_embedding": (False,),
        "add_final_layer_norm": (True,),
    },
    heads={
        "PegasusForConditionalGeneration": lambda m, l: LMHead(bias="buffer"),
        "PegasusModel": lambda m, l: NoHead(),
    },
)
