"""T5: encoder-decoder with bucketed distances and unscaled scores (Raffel et al. 2020, arXiv:1910.10683); v1.1, mT5 and ByT5 gate their
feed-forward and leave the head free (arXiv:2010.11934, arXiv:2105.13626)."""
from dataclasses import replace
from typing import Any

from .. import spec
from ..spec import Attention, Block, Buckets, Causal, Dense, Features, Gated, Model, RMSNorm, Shared, Stack, Tokens, Vocabulary, pre
from ..weights import Alias, Family, Field, Row, Skip, Table, Way, sizes


def make(depth: int, width: int, heads: int, hidden: int, head_width: int = 64, decoder_depth: int | None = None, vocabulary: int = 32128,
         buckets: int = 32, distance: int = 128, eps: float = 1e-6, activation: Any = "relu", gated: bool = False, scaled: bool = True,
         tied: bool = True, dropout: float = 0.1, head: Any = None) -> Model:
    norm = RMSNorm(eps=eps)
    attention = Attention(heads=heads, key_width=head_width, bias=False, out_bias=False, scale=1.0, dropout=dropout)
    inner = (Gated if gated else Dense)(hidden=hidden, activation=activation, bias=False, dropout=dropout)
    look, feed = pre(norm, attention, dropout=dropout), pre(norm, inner, dropout=dropout)
    causal = replace(look, inner=replace(attention, pattern=Causal()))
    return Model(width=width, source=Tokens(vocabulary=vocabulary, dropout=dropout), target=Shared(dropout=dropout),
                 encoder=Stack(blocks=(Block(attention=look, feedforward=feed),) * depth, norm=norm,
                               score=Buckets(count=buckets, distance=distance)),
                 decoder=Stack(blocks=(Block(attention=causal, cross=look, feedforward=feed),) * (decoder_depth or depth), norm=norm,
                               score=Buckets(count=buckets, distance=distance, sided=False)),
                 head=head or Vocabulary(tied=tied, scale=width ** -0.5 if scaled else 1.0))


PROJ = {"relu": (False, "relu"), "gated-gelu": (True, "gelu_tanh"), "gated-silu": (True, "swish")}


def read_proj(name: str) -> tuple[bool, str]:
    if name not in PROJ:
        raise ValueError(f"{name!r} is not in the design space; Weft knows {', '.join(PROJ)}")
    return PROJ[name]


def write_proj(m: Any) -> dict[str, Any]:
    inner = m.encoder.blocks[0].feedforward.inner
    names = [name for name, kind in PROJ.items() if kind == (isinstance(inner, Gated), inner.activation)]
    if not names:
        raise ValueError(f"a T5 file knows {', '.join(PROJ)}, not {type(inner).__name__} with {inner.activation}")
    return {"feed_forward_proj": names[0]}


LOOK, HIDDEN = "encoder.blocks.0.attention.inner", "encoder.blocks.0.feedforward.inner"
FIELDS = (
    Field("depth", "num_layers", "encoder.blocks.length", 6), Field("decoder_depth", "num_decoder_layers", "decoder.blocks.length"),
    Field("width", "d_model", "width", 512), Field("heads", "num_heads", f"{LOOK}.heads", 8),
    Field("head_width", "d_kv", f"{LOOK}.key_width", 64), Field("hidden", "d_ff", f"{HIDDEN}.hidden", 2048),
    Field("vocabulary", "vocab_size", "source.vocabulary", 32128), Field("dropout", "dropout_rate", "source.dropout", 0.1),
    Field("buckets", "relative_attention_num_buckets", "encoder.score.count", 32),
    Field("distance", "relative_attention_max_distance", "encoder.score.distance", 128),
    Field("eps", "layer_norm_epsilon", "encoder.norm.eps", 1e-6),                # `write_proj` writes the next two
    Field("activation", "feed_forward_proj", f"{HIDDEN}.activation", "relu", Way(lambda n: read_proj(n)[1], str)),
    Field("gated", "feed_forward_proj", lambda m: isinstance(m.encoder.blocks[0].feedforward.inner, Gated), False,
          Way(lambda n: read_proj(n)[0], bool)))
TIED = Field("tied", "tie_word_embeddings", lambda m: getattr(m.head, "tied", True), True)
SCALED = Field("scaled", "scale_decoder_outputs", lambda m: getattr(m.head, "scale", 0.0) != 1.0, True, legacy=("tie_word_embeddings",))

ATTENTION = {"query": "q", "key": "k", "value": "v", "out": "o"}


def branch(stack: str, ours: str, index: int, theirs: str, names: dict[str, str], when: str = "") -> Table:
    here, there = f"{stack}.blocks.{{}}.{ours}", f"{stack}.block.{{}}.layer.{index}"
    return (Row(f"{here}.before.weight", f"{there}.layer_norm.weight", when=when),
            *(Row(f"{here}.inner.{o}.weight", f"{there}.{theirs}.{t}.weight", when=when) for o, t in names.items()))


STACKS, DENSE, GATED = ("encoder", "decoder"), {"up": "wi", "down": "wo"}, {"gate": "wi_0", "up": "wi_1", "down": "wo"}
TABLE: Table = (
    Row("source.tokens.weight", "shared.weight"), *(Alias(f"{s}.embed_tokens.weight", "shared.weight", "source") for s in STACKS),
    *(Row(f"{s}.score.weight", f"{s}.block.0.layer.0.SelfAttention.relative_attention_bias.weight") for s in STACKS),
    *(row for s in STACKS for row in branch(s, "attention", 0, "SelfAttention", ATTENTION)),
    *branch("decoder", "cross", 1, "EncDecAttention", ATTENTION),
    *(row for i, s in enumerate(STACKS) for row in branch(s, "feedforward", i + 1, "DenseReluDense", DENSE, "Dense")),
    *(row for i, s in enumerate(STACKS) for row in branch(s, "feedforward", i + 1, "DenseReluDense", GATED, "Gated")),
    *(Row(f"{s}.norm.weight", f"{s}.final_layer_norm.weight") for s in STACKS), Row("head.out.weight", "lm_head.weight"),
    Skip("decoder.block.{}.layer.1.EncDecAttention.relative_attention_bias.weight", "unused: cross-attention has no distances"))


def heads(name: str) -> dict[str, Any]:
    return {f"{name}ForConditionalGeneration": lambda m, l: m.head if isinstance(m.head, Vocabulary) else Vocabulary(),
            f"{name}Model": lambda m, l: Features()}


COLUMNS = "depth width heads hidden"
t5 = Family("t5", "arXiv:1910.10683", make, {
    **sizes(COLUMNS, small=(6, 512, 8, 2048), base=(12, 768, 12, 3072), large=(24, 1024, 16, 4096)),
    **sizes(COLUMNS + " head_width", _3b=(24, 1024, 32, 16384, 128), _11b=(24, 1024, 128, 65536, 128))},
    "t5", (*FIELDS, TIED, SCALED), TABLE, heads("T5"), start=spec.T5Start(), extra=write_proj)


def gated(**more: Any) -> Any:
    return lambda **given: make(**{"gated": True, "activation": "gelu_tanh", "scaled": False, "tied": False, **more, **given})


V1_1 = sizes(COLUMNS, small=(8, 512, 6, 1024), base=(12, 768, 12, 2048), large=(24, 1024, 16, 2816), xl=(24, 2048, 32, 5120),
             xxl=(24, 4096, 64, 10240))
MT5 = {"depth": 8, "heads": 6, "hidden": 1024, "vocabulary": 250112, "activation": "gelu_tanh", "gated": True}
t5_v1_1 = replace(t5, name="t5_v1_1", make=gated(), sizes=V1_1)
mt5 = replace(t5, name="mt5", paper="arXiv:2010.11934", make=gated(vocabulary=250112), sizes=V1_1, model_type="mt5", heads=heads("MT5"),
              fields=tuple(replace(f, default=MT5.get(f.argument, f.default)) for f in (*FIELDS, TIED)),
              only={"scale_decoder_outputs": (False,)})
byt5 = replace(t5, name="byt5", paper="arXiv:2105.13626", make=gated(vocabulary=384), sizes=sizes(
    COLUMNS + " decoder_depth", small=(12, 1472, 6, 3584, 4), base=(18, 1536, 12, 3968, 6), large=(36, 1536, 16, 3840, 12),
    xl=(36, 2560, 32, 6720, 12), xxl=(36, 4672, 64, 12352, 12)))
