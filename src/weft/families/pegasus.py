"""Pegasus: Marian with norms before each branch and after each stack (Zhang et al. 2019, arXiv:1912.08777)."""
from typing import Any

from ..spec import Features, Model, Sinusoid, Vocabulary
from ..weights import Family, Field, Table, both, layer, sizes
from . import bart
from .bart import CORE, CROSS, ENDS, NAMES
from .marian import SINUSOIDS

SIZES = sizes("depth width heads hidden vocabulary", large=(16, 1024, 16, 4096, 96103), base=(12, 768, 12, 3072, 96103))


def make(vocabulary: int = 50265, activation: Any = "relu", scaled: bool = True, **rest: Any) -> Model:
    return bart.make(vocabulary=vocabulary, activation=activation, scaled=scaled, positions=Sinusoid(layout="halves"), normed=False,
                     pre_norm=True, **rest)


def before(names: dict[str, str]) -> dict[str, str]:
    return {ours.replace(".after", ".before"): theirs for ours, theirs in names.items()}


TABLE: Table = (
    *ENDS, *SINUSOIDS, *layer("encoder.blocks.{}", "model.encoder.layers.{}", before(NAMES)),
    *layer("decoder.blocks.{}", "model.decoder.layers.{}", before(NAMES | CROSS)),
    *both("encoder.norm", "model.encoder.layer_norm"), *both("decoder.norm", "model.decoder.layer_norm"))

pegasus = Family("pegasus", "arXiv:1912.08777", make, SIZES, "pegasus",
                 (*CORE, Field("vocabulary", "vocab_size", "source.vocabulary", 50265)), TABLE, prefix="model.",
                 context="max_position_embeddings",
                 only={"normalize_before": (True,), "normalize_embedding": (False,), "add_final_layer_norm": (True,)},
                 heads={"PegasusForConditionalGeneration": lambda m, l: Vocabulary(bias="stored"), "PegasusModel": lambda m, l: Features()})
