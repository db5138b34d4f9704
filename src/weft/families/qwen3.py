"""Qwen3: Llama with a norm on the queries and keys of each head (Qwen Team 2025, arXiv:2505.09388,
section 2).
"""

from typing import Any

from ..spec import QKNorm, RMSNorm, Spec
from . import llama
from .base import ConfigField, Family, size_table
from .llama import ATTENTION, ENDS, GATED, heads
from .weights import WeightTable, layer_rows

SIZES = size_table(
    "depth width heads hidden tied",
    _0__6b=(28, 1024, 16, 3072, True),
    _1__7b=(28, 2048, 16, 6144, True),
    _4b=(36, 2560, 32, 9728, True),
    _8b=(36, 4096, 32, 12288, False),
    _14b=(40, 5120, 40, 17408, False),
    _32b=(64, 5120, 64, 25600, False),
)


def make(
    kv_heads: int | None = 8,
    head_dim: int = 128,
    vocab_size: int = 151936,
    theta: float = 1_000_000.0,
    eps: float = 1e-6,
    **rest: Any,
) -> Spec:
    return llama.make(
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocab_size=vocab_size,
        theta=theta,
        eps=eps,
        qk_norm=QKNorm(norm=RMSNorm(eps=eps)),
        **rest,
    )


# defaults that differ from Llama's
OTHER = {
    "head_dim": 128,
    "vocab_size": 151936,
    "kv_heads": 32,
    "hidden": 22016,
}
FIELDS = tuple(
    ConfigField(f.argument, f.keys, f.path, OTHER.get(f.argument, f.default), f.codec)
    for f in llama.FIELDS
    if f.argument != "hidden_bias"
)
NORMS = {
    "attention.inner.query_norm": "self_attn.q_norm",
    "attention.inner.key_norm": "self_attn.k_norm",
}
TABLE: WeightTable = (
    *ENDS,
    *layer_rows("decoder.blocks.{}", "model.layers.{}", ATTENTION | GATED | NORMS),
)

qwen3 = Family(
    "qwen3",
    "arXiv:2505.09388",
    make,
    SIZES,
    "qwen3",
    FIELDS,
    TABLE,
    prefix="model.",
    context_length_key="max_position_embeddings",
    heads=heads("Qwen3"),
    supported_values={"use_sliding_window": (False,)},
    training_length=4096,  # before longer contexts
)
