"""Gemma 2: sandwich norms, every other layer through a window, soft caps on scores and logits (Gemma Team 2024, arXiv:2408.00118)."""
from typing import Any

from ..spec import Attention, Block, Causal, Gated, Model, RMSNorm, Rotary, Stack, Tokens, Vocabulary, Window, sandwich
from ..weights import PYTORCH_ACTIVATION, TUPLE, Family, Field, Row, Table, Way, layer, sizes
from .llama import heads as llama_heads

SIZES = sizes("depth width heads groups head_width hidden query", _2b=(26, 2304, 8, 4, 256, 9216, 256),
              _9b=(42, 3584, 16, 8, 256, 14336, 256), _27b=(46, 4608, 32, 16, 128, 36864, 144))


def make(depth: int, width: int, heads: int, groups: int, head_width: int, hidden: int, query: float = 256, vocabulary: int = 256000,
         window: int = 4096, theta: float = 10_000.0, eps: float = 1e-6, activation: Any = "gelu_tanh", head: Any = None,
         kinds: tuple[str, ...] | None = None, softcap: float | None = 50.0, logit_softcap: float | None = 30.0) -> Model:
    """`kinds`: which layers see all; None: every other, from the second. `softcap`: on the attention scores."""
    if kinds is not None and len(kinds) != depth:
        raise ValueError(f"{len(kinds)} kinds for {depth} layers; give one each")
    norm = RMSNorm(eps=eps)

    def block(i: int) -> Block:
        whole = i % 2 if kinds is None else kinds[i] == "full_attention"
        look = Attention(heads=heads, groups=groups, key_width=head_width, bias=False, out_bias=False, scale=query ** -0.5,
                         softcap=softcap, rotary=Rotary(theta=theta), pattern=Causal() if whole else Window(before=window - 1, after=0))
        return Block(attention=sandwich(norm, look), feedforward=sandwich(norm, Gated(hidden=hidden, activation=activation, bias=False)))

    return Model(width=width, source=Tokens(vocabulary=vocabulary, scale=width ** 0.5), head=head or Vocabulary(softcap=logit_softcap),
                 decoder=Stack(blocks=tuple(block(i) for i in range(depth)), norm=norm))


def kinds(m: Any) -> tuple[str, ...]:
    return tuple("full_attention" if b.attention.inner.pattern == Causal() else "sliding_attention" for b in m.decoder.blocks)


def window(m: Any) -> int:
    return next((b.attention.inner.pattern.before + 1 for b in m.decoder.blocks if b.attention.inner.pattern != Causal()), 4096)


LOOK, HIDDEN = "decoder.blocks.0.attention.inner", "decoder.blocks.0.feedforward.inner"
FIELDS = (
    Field("depth", "num_hidden_layers", "decoder.blocks.length", 26), Field("width", "hidden_size", "width", 2304),
    Field("heads", "num_attention_heads", f"{LOOK}.heads", 8), Field("groups", "num_key_value_heads", f"{LOOK}.groups", 4),
    Field("head_width", "head_dim", f"{LOOK}.key_width", 256), Field("hidden", "intermediate_size", f"{HIDDEN}.hidden", 9216),
    Field("query", "query_pre_attn_scalar", lambda m: round(m.decoder.blocks[0].attention.inner.scale ** -2), 256),
    Field("vocabulary", "vocab_size", "source.vocabulary", 256000),
    Field("window", "sliding_window", window, 4096), Field("kinds", "layer_types", kinds, None, TUPLE),
    Field("theta", ("rope_parameters.rope_theta", "rope_theta"), f"{LOOK}.rotary.theta", 10_000.0, Way(float, float)),
    Field("eps", "rms_norm_eps", "decoder.norm.eps", 1e-6),
    Field("activation", ("hidden_activation", "hidden_act"), f"{HIDDEN}.activation", "gelu_tanh",
          PYTORCH_ACTIVATION),
    Field("softcap", "attn_logit_softcapping", f"{LOOK}.softcap", 50.0, nullable=True),
    Field("logit_softcap", "final_logit_softcapping", lambda m: getattr(m.head, "softcap", 30.0), 30.0, nullable=True),
    Field("std", "initializer_range", "start.std", 0.02))

NORMS = {"attention.before": "input_layernorm", "attention.out": "post_attention_layernorm",
         "feedforward.before": "pre_feedforward_layernorm", "feedforward.out": "post_feedforward_layernorm"}
MAPS = {"attention.inner.query": "self_attn.q_proj", "attention.inner.key": "self_attn.k_proj", "attention.inner.value": "self_attn.v_proj",
        "attention.inner.out": "self_attn.o_proj", "feedforward.inner.gate": "mlp.gate_proj", "feedforward.inner.up": "mlp.up_proj",
        "feedforward.inner.down": "mlp.down_proj"}
TABLE: Table = (
    Row("source.tokens.weight", "model.embed_tokens.weight"), Row("decoder.norm.weight", "model.norm.weight", "less_one"),
    *layer("decoder.blocks.{}", "model.layers.{}", NORMS, "less_one"), *layer("decoder.blocks.{}", "model.layers.{}", MAPS),
    Row("head.out.weight", "lm_head.weight", when="Vocabulary"), Row("head.out.weight", "score.weight", when="Classes"))

gemma2 = Family("gemma2", "arXiv:2408.00118", make, SIZES, "gemma2", FIELDS, TABLE, prefix="model.", context="max_position_embeddings",
                heads=llama_heads("Gemma2") | {"Gemma2ForCausalLM": lambda m, l: Vocabulary(softcap=getattr(m.head, "softcap", 30.0))},
                only={"attention_bias": (False,), "use_bidirectional_attention": (None, False), "rope_parameters.rope_type": ("default",)})
