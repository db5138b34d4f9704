"""GPT-2: pre-norm causal decoder with learned positions (Radford et al. 2019, "Language models are unsupervised multitask learners")."""
from typing import Any

from ..spec import Attention, Block, Causal, Classes, Dense, Features, LayerNorm, Learned, Model, Normal, Stack, Tokens, Vocabulary, pre
from ..weights import ACTIVATION, Family, Field, Row, Skip, Table, both, sizes

SIZES = sizes("depth width heads", small=(12, 768, 12), medium=(24, 1024, 16), large=(36, 1280, 20), xl=(48, 1600, 25))


def make(depth: int, width: int, heads: int, hidden: int | None = None, vocabulary: int = 50257, positions: int = 1024,
         eps: float = 1e-5, activation: Any = "gelu_tanh", dropout: float = 0.1, attention_dropout: float = 0.1,
         embedding_dropout: float = 0.1, tied: bool = True, head: Any = None) -> Model:
    norm = LayerNorm(eps=eps)
    block = Block(attention=pre(norm, Attention(heads=heads, pattern=Causal(), dropout=attention_dropout), dropout=dropout),
                  feedforward=pre(norm, Dense(hidden=hidden or 4 * width, activation=activation), dropout=dropout))
    return Model(width=width, source=Tokens(vocabulary=vocabulary, positions=Learned(count=positions), dropout=embedding_dropout),
                 decoder=Stack(blocks=(block,) * depth, norm=norm), head=head or Vocabulary(tied=tied))


BLOCK = "decoder.blocks.0"
FIELDS = (
    Field("depth", "n_layer", "decoder.blocks.length", 12), Field("width", "n_embd", "width", 768),
    Field("heads", "n_head", f"{BLOCK}.attention.inner.heads", 12), Field("hidden", "n_inner", f"{BLOCK}.feedforward.inner.hidden"),
    Field("vocabulary", "vocab_size", "source.vocabulary", 50257), Field("positions", "n_positions", "source.positions.count", 1024),
    Field("eps", "layer_norm_epsilon", f"{BLOCK}.attention.before.eps", 1e-5),
    Field("activation", "activation_function", f"{BLOCK}.feedforward.inner.activation", "gelu_tanh", ACTIVATION),
    Field("dropout", "resid_pdrop", f"{BLOCK}.attention.dropout", 0.1),
    Field("attention_dropout", "attn_pdrop", f"{BLOCK}.attention.inner.dropout", 0.1),
    Field("embedding_dropout", "embd_pdrop", "source.dropout", 0.1),
    Field("tied", "tie_word_embeddings", lambda m: getattr(m.head, "tied", True), True),
    Field("std", "initializer_range", "start.std", 0.02))


def body(tokens: str, positions: str) -> Table:
    """Decoder layers as GPT and GPT-2 name them; their maps are stored inputs first."""
    ours, theirs = "decoder.blocks.{}.", "transformer.h.{}."
    return (
        Row("source.tokens.weight", f"transformer.{tokens}.weight"), Row("source.positions.weight", f"transformer.{positions}.weight"),
        *both(tuple(ours + f"attention.inner.{n}" for n in ("query", "key", "value")), theirs + "attn.c_attn", "transposed"),
        *both(ours + "attention.inner.out", theirs + "attn.c_proj", "transposed"),
        *both(ours + "feedforward.inner.up", theirs + "mlp.c_fc", "transposed"),
        *both(ours + "feedforward.inner.down", theirs + "mlp.c_proj", "transposed"),
        Row("head.out.weight", "lm_head.weight", when="Vocabulary"), Row("head.out.weight", "score.weight", when="Classes"),
        Skip(theirs + "attn.bias", "the causal triangle"), Skip(theirs + "attn.masked_bias", "a constant"))


TABLE: Table = (
    *body("wte", "wpe"), *both("decoder.blocks.{}.attention.before", "transformer.h.{}.ln_1"),
    *both("decoder.blocks.{}.feedforward.before", "transformer.h.{}.ln_2"), *both("decoder.norm", "transformer.ln_f"))


def free_classes(m: Model, l: Any) -> Classes:
    """One score a class from the last token, as GPT's authors fine-tune (E2)."""
    return Classes(outputs=l.outputs, labels=l.labels, pool="last", bias=False)


gpt2 = Family(
    "gpt2", "Radford et al. 2019", make, SIZES, "gpt2", FIELDS, TABLE, prefix="transformer.", start=Normal(by_depth=True),
    only={"scale_attn_weights": (True,), "scale_attn_by_inverse_layer_idx": (False,), "add_cross_attention": (False,)},
    heads={"GPT2LMHeadModel": lambda m, l: Vocabulary(tied=getattr(m.head, "tied", True)), "GPT2Model": lambda m, l: Features(),
           "GPT2ForSequenceClassification": free_classes})
