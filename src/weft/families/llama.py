"""Llama: pre-norm causal decoder, RMSNorm, rotary positions, SwiGLU, grouped queries (Touvron et al. 2023, arXiv:2302.13971)."""
from typing import Any

from ..spec import (
    Attention, Block, Causal, Features, Gated, Model, QKNorm, RMSNorm, Rotary, Stack, Stretch, Tokens, Vocabulary, Window, pre)
from ..weights import ACTIVATION, Family, Field, Row, Skip, Table, Way, layer, sizes
from .gpt2 import free_classes

SIZES = {
    **sizes("depth width heads groups hidden vocabulary theta eps", _7b=(32, 4096, 32, 32, 11008, 32000, 1e4, 1e-5),
            _13b=(40, 5120, 40, 40, 13824, 32000, 1e4, 1e-5), _65b=(80, 8192, 64, 64, 22016, 32000, 1e4, 1e-5),
            _2_70b=(80, 8192, 64, 8, 28672, 32000, 1e4, 1e-5), _3_8b=(32, 4096, 32, 8, 14336, 128256, 5e5, 1e-5),
            _3_70b=(80, 8192, 64, 8, 28672, 128256, 5e5, 1e-5)),
    **sizes("depth width heads groups hidden vocabulary theta eps tied stretch",
            _3__2_1b=(16, 2048, 32, 8, 8192, 128256, 5e5, 1e-5, True, Stretch(factor=32.0)),
            _3__2_3b=(28, 3072, 24, 8, 8192, 128256, 5e5, 1e-5, True, Stretch(factor=32.0)),
            smollm2_135m=(30, 576, 9, 3, 1536, 49152, 1e5, 1e-5, True, None))}


def make(depth: int, width: int, heads: int, hidden: int, groups: int | None = None, head_width: int | None = None, vocabulary: int = 32000,
         theta: float = 10_000.0, stretch: Stretch | None = None, eps: float = 1e-6, activation: Any = "swish", window: int | None = None,
         bias: bool = False, hidden_bias: bool = False, tied: bool = False, attention_dropout: float = 0.0, head: Any = None,
         feedforward: Any = None, qk_norm: QKNorm | None = None) -> Model:
    norm = RMSNorm(eps=eps)
    look = Attention(heads=heads, groups=groups or heads, key_width=head_width or width // heads, bias=bias, out_bias=bias,
                     pattern=Window(before=window - 1, after=0) if window else Causal(), rotary=Rotary(theta=theta, stretch=stretch),
                     dropout=attention_dropout, qk_norm=qk_norm)
    gated = feedforward or Gated(hidden=hidden, activation=activation, bias=hidden_bias)
    block = Block(attention=pre(norm, look), feedforward=pre(norm, gated))
    return Model(width=width, source=Tokens(vocabulary=vocabulary), decoder=Stack(blocks=(block,) * depth, norm=norm),
                 head=head or Vocabulary(tied=tied))


def read_stretch(found: Any) -> Stretch | None:
    kind = found.get("rope_type", found.get("type", "default"))
    if kind not in ("default", "llama3"):
        raise ValueError(f"rotary scaling {kind!r} is not in the design space; Weft knows 'default' and 'llama3'")
    return None if kind == "default" else Stretch(factor=float(found["factor"]), low=float(found["low_freq_factor"]),
                                                  high=float(found["high_freq_factor"]), original=found["original_max_position_embeddings"])


def write_stretch(s: Stretch | None) -> dict[str, Any]:
    return {"rope_type": "default"} if s is None else {"rope_type": "llama3", "factor": s.factor, "low_freq_factor": s.low,
                                                       "high_freq_factor": s.high, "original_max_position_embeddings": s.original}


LOOK, HIDDEN = "decoder.blocks.0.attention.inner", "decoder.blocks.0.feedforward.inner"
STRETCH = Field("stretch", ("rope_parameters", "rope_scaling"), f"{LOOK}.rotary.stretch", None, Way(read_stretch, write_stretch))
CORE = (
    Field("depth", "num_hidden_layers", "decoder.blocks.length", 32), Field("width", "hidden_size", "width", 4096),
    Field("heads", "num_attention_heads", f"{LOOK}.heads", 32), Field("groups", "num_key_value_heads", f"{LOOK}.groups"),
    Field("head_width", "head_dim", f"{LOOK}.key_width"), Field("vocabulary", "vocab_size", "source.vocabulary", 32000), STRETCH,
    Field("theta", ("rope_parameters.rope_theta", "rope_theta"), f"{LOOK}.rotary.theta", 10_000.0, Way(float, float)),
    Field("eps", "rms_norm_eps", "decoder.norm.eps", 1e-6),
    Field("tied", "tie_word_embeddings", lambda m: getattr(m.head, "tied", False), False),
    Field("attention_dropout", "attention_dropout", f"{LOOK}.dropout", 0.0), Field("std", "initializer_range", "start.std", 0.02))
FIELDS = (
    *CORE, Field("hidden", "intermediate_size", f"{HIDDEN}.hidden", 11008), Field("bias", "attention_bias", f"{LOOK}.bias", False),
    Field("hidden_bias", "mlp_bias", f"{HIDDEN}.bias", False),
    Field("activation", "hidden_act", f"{HIDDEN}.activation", "swish", ACTIVATION))

ATTENTION = {"attention.before": "input_layernorm", "attention.inner.query": "self_attn.q_proj", "attention.inner.key": "self_attn.k_proj",
             "attention.inner.value": "self_attn.v_proj", "attention.inner.out": "self_attn.o_proj",
             "feedforward.before": "post_attention_layernorm"}
GATED = {"feedforward.inner.gate": "mlp.gate_proj", "feedforward.inner.up": "mlp.up_proj", "feedforward.inner.down": "mlp.down_proj"}
ENDS: Table = (
    Row("source.tokens.weight", "model.embed_tokens.weight"), Row("decoder.norm.weight", "model.norm.weight"),
    Row("head.out.weight", "lm_head.weight", when="Vocabulary"), Row("head.out.weight", "score.weight", when="Classes"),
    Skip("model.layers.{}.self_attn.rotary_emb.inv_freq", "worked out"))
TABLE: Table = (*ENDS, *layer("decoder.blocks.{}", "model.layers.{}", ATTENTION | GATED))


def heads(name: str) -> dict[str, Any]:
    return {f"{name}ForCausalLM": lambda m, l: Vocabulary(tied=getattr(m.head, "tied", False)), f"{name}Model": lambda m, l: Features(),
            f"{name}ForSequenceClassification": free_classes}


llama = Family("llama", "arXiv:2302.13971", make, SIZES, "llama", FIELDS, TABLE, prefix="model.",
               context="max_position_embeddings", heads=heads("Llama"), only={"pretraining_tp": (1,)})
