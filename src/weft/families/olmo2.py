"""OLMo 2: Llama with norms on the outputs of branches and on whole queries and keys (OLMo Team
2025, arXiv:2501.00656, section 3).
"""

from typing import Any

from ..spec import Block, Branch, QKNorm, RMSNorm, Spec, Stack, replace
from . import llama
from .base import ConfigField, Family, size_table
from .llama import ATTENTION, ENDS, GATED, heads
from .weights import WeightTable, layer_rows

SIZES = size_table(
    "depth width heads kv_heads hidden",
    _7b=(32, 4096, 32, 32, 11008),
    _1b=(16, 2048, 16, 16, 8192),
    _13b=(40, 5120, 40, 40, 13824),
    _32b=(64, 5120, 40, 8, 27648),
)


def make(
    depth: int, vocab_size: int = 100352, theta: float = 500_000.0, eps: float = 1e-6, **rest: Any
) -> Spec:
    """Return Llama's block with the norm of each branch moved from its input to its output."""
    norms = QKNorm(norm=RMSNorm(eps=eps), per="projection")
    spec = llama.make(depth=1, vocab_size=vocab_size, theta=theta, eps=eps, qk_norm=norms, **rest)
    assert spec.decoder is not None
    llamas = spec.decoder.blocks[0]
    attention = replace(llamas.attention.inner, head_dim=None)  # type: ignore[type-var]   # always width / heads
    norm = spec.decoder.norm
    block = Block(
        attention=Branch(inner=attention, out=norm),
        feedforward=Branch(inner=llamas.feedforward.inner, out=norm),
    )
    return replace(spec, decoder=Stack(blocks=(block,) * depth, norm=norm))


OTHER = {"vocab_size": 50304, "eps": 1e-5}  # defaults that differ from Llama's
FIELDS = tuple(
    ConfigField(f.argument, f.keys, f.path, OTHER.get(f.argument, f.default), f.codec)
    for f in llama.FIELDS
    if f.argument not in ("head_dim", "hidden_bias")
)
NORMS = {
    "attention.inner.query_norm": "self_attn.q_norm",
    "attention.inner.key_norm": "self_attn.k_norm",
    "attention.out": "post_attention_layernorm",
    "feedforward.out": "post_feedforward_layernorm",
}
MAPS = {ours: theirs for ours, theirs in (ATTENTION | GATED).items() if ".inner." in ours}
TABLE: WeightTable = (*ENDS, *layer_rows("decoder.blocks.{}", "model.layers.{}", MAPS | NORMS))

olmo2 = Family(
    "olmo2",
    "arXiv:2501.00656",
    make,
    SIZES,
    "olmo2",
    FIELDS,
    TABLE,
    prefix="model.",
    context_length_key="max_position_embeddings",
    heads=heads("Olmo2"),
    training_length=4096,
)
