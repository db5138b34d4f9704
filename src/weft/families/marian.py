"""Marian: the 2017 Transformer with sines before cosines, as the Marian toolkit trains it
(Junczys-Dowmunt et al. 2018, arXiv:1804.00344).
"""

from typing import Any

from ..spec import LMHead, NoHead, SinusoidalPositions, Spec
from . import bart
from .bart import BODY, CORE
from .base import ConfigField, Family, size_table
from .weights import SkippedWeight, WeightTable

SIZES = size_table(
    "depth width heads hidden vocab_size",
    opus_base=(6, 512, 8, 2048, 58101),
    big=(6, 1024, 16, 4096, 58101),
)


def make(activation: Any = "silu", scaled: bool = True, **rest: Any) -> Spec:
    return bart.make(
        activation=activation,
        scaled=scaled,
        positions=SinusoidalPositions(layout="halves"),
        normed=False,
        **rest,
    )


SINUSOIDS: WeightTable = tuple(
    SkippedWeight(f"model.{s}.embed_positions.weight", "sinusoids, computed by Weft")
    for s in ("encoder", "decoder")
)

marian = Family(
    "marian",
    "arXiv:1804.00344",
    make,
    SIZES,
    "marian",
    (
        *CORE,
        ConfigField("vocab_size", ("vocab_size", "decoder_vocab_size"), "source.vocab_size", 58101),
    ),
    (*BODY, *SINUSOIDS),
    prefix="model.",
    context_length_key="max_position_embeddings",
    supported_values={
        "share_encoder_decoder_embeddings": (True,),
        "normalize_before": (False,),
        "normalize_embedding": (False,),
    },
    heads={
        "MarianMTModel": lambda m, l: LMHead(bias="buffer"),
        "MarianModel": lambda m, l: NoHead(),
    },
)
