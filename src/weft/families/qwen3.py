"""Qwen3: Llama with a norm on the queries and keys of each head (Qwen Team 2025, arXiv:2505.09388, section 2)."""
from typing import Any

from ..spec import Model, QKNorm, RMSNorm
from ..weights import Family, Field, Table, layer, sizes
from . import llama
from .llama import ATTENTION, ENDS, GATED, heads

SIZES = sizes("depth width heads hidden tied", _0__6b=(28, 1024, 16, 3072, True), _1__7b=(28, 2048, 16, 6144, True),
              _4b=(36, 2560, 32, 9728, True), _8b=(36, 4096, 32, 12288, False), _14b=(40, 5120, 40, 17408, False),
              _32b=(64, 5120, 64, 25600, False))


def make(groups: int | None = 8, head_width: int = 128, vocabulary: int = 151936, theta: float = 1_000_000.0, eps: float = 1e-6,
         **rest: Any) -> Model:
    return llama.make(groups=groups, head_width=head_width, vocabulary=vocabulary, theta=theta, eps=eps,
                      qk_norm=QKNorm(norm=RMSNorm(eps=eps)), **rest)


OTHER = {"head_width": 128, "vocabulary": 151936, "groups": 32, "hidden": 22016}       # than Llama's, where a file is silent
FIELDS = tuple(Field(f.argument, f.keys, f.path, OTHER.get(f.argument, f.default), f.way) for f in llama.FIELDS
               if f.argument != "hidden_bias")
NORMS = {"attention.inner.query_norm": "self_attn.q_norm", "attention.inner.key_norm": "self_attn.k_norm"}
TABLE: Table = (*ENDS, *layer("decoder.blocks.{}", "model.layers.{}", ATTENTION | GATED | NORMS))

qwen3 = Family("qwen3", "arXiv:2505.09388", make, SIZES, "qwen3", FIELDS, TABLE, prefix="model.", context="max_position_embeddings",
               heads=heads("Qwen3"), only={"use_sliding_window": (False,)})
