"""OLMo 2: Llama with norms on the outputs of its branches and on all queries and keys (OLMo Team 2025, arXiv:2501.00656, section 3)."""
from typing import Any

from ..spec import Block, Branch, Model, QKNorm, RMSNorm, Stack, replace
from ..weights import Family, Field, Table, layer, sizes
from . import llama
from .llama import ATTENTION, ENDS, GATED, heads

SIZES = sizes("depth width heads groups hidden", _7b=(32, 4096, 32, 32, 11008), _1b=(16, 2048, 16, 16, 8192),
              _13b=(40, 5120, 40, 40, 13824), _32b=(64, 5120, 40, 8, 27648))


def make(depth: int, vocabulary: int = 100352, theta: float = 500_000.0, eps: float = 1e-6, **rest: Any) -> Model:
    """Llama's block with each branch's norm moved from its input to its output."""
    norms = QKNorm(norm=RMSNorm(eps=eps), over="projection")
    made = llama.make(depth=1, vocabulary=vocabulary, theta=theta, eps=eps, qk_norm=norms, **rest)
    assert made.decoder is not None
    llamas = made.decoder.blocks[0]
    look = replace(llamas.attention.inner, key_width=None)  # type: ignore[arg-type]   # always width / heads
    norm = made.decoder.norm
    block = Block(attention=Branch(inner=look, out=norm), feedforward=Branch(inner=llamas.feedforward.inner, out=norm))
    return replace(made, decoder=Stack(blocks=(block,) * depth, norm=norm))


OTHER = {"vocabulary": 50304, "eps": 1e-5}             # than Llama's, where a file is silent
FIELDS = tuple(Field(f.argument, f.keys, f.path, OTHER.get(f.argument, f.default), f.way) for f in llama.FIELDS
               if f.argument not in ("head_width", "hidden_bias"))
NORMS = {"attention.inner.query_norm": "self_attn.q_norm", "attention.inner.key_norm": "self_attn.k_norm",
         "attention.out": "post_attention_layernorm", "feedforward.out": "post_feedforward_layernorm"}
MAPS = {ours: theirs for ours, theirs in (ATTENTION | GATED).items() if ".inner." in ours}
TABLE: Table = (*ENDS, *layer("decoder.blocks.{}", "model.layers.{}", MAPS | NORMS))

olmo2 = Family("olmo2", "arXiv:2501.00656", make, SIZES, "olmo2", FIELDS, TABLE, prefix="model.", context="max_position_embeddings",
               heads=heads("Olmo2"))
