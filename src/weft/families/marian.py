"""Marian: the 2017 Transformer as its translators train it, sines before cosines (Junczys-Dowmunt et al. 2018, arXiv:1804.00344)."""
from typing import Any

from ..spec import Features, Model, Sinusoid, Vocabulary
from ..weights import Family, Field, Skip, Table, sizes
from . import bart
from .bart import BODY, CORE

SIZES = sizes("depth width heads hidden vocabulary", opus_base=(6, 512, 8, 2048, 58101), big=(6, 1024, 16, 4096, 58101))


def make(activation: Any = "swish", scaled: bool = True, **rest: Any) -> Model:
    return bart.make(activation=activation, scaled=scaled, positions=Sinusoid(layout="halves"), normed=False, **rest)


SINUSOIDS: Table = tuple(Skip(f"model.{s}.embed_positions.weight", "worked out: sinusoids") for s in ("encoder", "decoder"))

marian = Family("marian", "arXiv:1804.00344", make, SIZES, "marian",
                (*CORE, Field("vocabulary", ("vocab_size", "decoder_vocab_size"), "source.vocabulary", 58101)),
                (*BODY, *SINUSOIDS), prefix="model.",
                context="max_position_embeddings",
                only={"share_encoder_decoder_embeddings": (True,), "normalize_before": (False,), "normalize_embedding": (False,)},
                heads={"MarianMTModel": lambda m, l: Vocabulary(bias="stored"), "MarianModel": lambda m, l: Features()})
