"""GPT: post-norm causal decoder with learned positions (Radford et al. 2018, "Improving language understanding")."""
from dataclasses import replace
from typing import Any

from ..spec import Attention, Block, Causal, Dense, Features, LayerNorm, Learned, Model, Stack, Tokens, Vocabulary, post
from ..weights import ACTIVATION, Family, Field, Table, Way, both, sizes
from . import gpt2

SIZES = sizes("depth width heads vocabulary positions", base=(12, 768, 12, 40478, 512))


def make(depth: int, width: int, heads: int, vocabulary: int = 40478, positions: int = 512, eps: float = 1e-5,
    activation: Any = "gelu_tanh",
         dropout: float = 0.1, attention_dropout: float = 0.1, embedding_dropout: float = 0.1, head: Any = None) -> Model:
    norm = LayerNorm(eps=eps)
    block = Block(attention=post(norm, Attention(heads=heads, pattern=Causal(), dropout=attention_dropout), dropout=dropout),
                  feedforward=post(norm, Dense(hidden=4 * width, activation=activation), dropout=dropout))
    return Model(width=width, source=Tokens(vocabulary=vocabulary, positions=Learned(count=positions), dropout=embedding_dropout),
                 decoder=Stack(blocks=(block,) * depth), head=head or Vocabulary())


def own(f: Field) -> Field:
    if f.argument == "eps":
        return replace(f, path="decoder.blocks.0.attention.after.eps")
    if f.argument == "activation":         # "gelu" means the tanh form here, as in the paper's code
        return replace(f, key="afn", way=Way(lambda n: "gelu_tanh" if n == "gelu" else ACTIVATION.read(n),
                                             lambda n: "gelu" if n == "gelu_tanh" else ACTIVATION.write(n)))
    return f


DEFAULTS = {"vocabulary": 40478, "positions": 512}
FIELDS = tuple(replace(own(f), default=DEFAULTS.get(f.argument, f.default)) for f in gpt2.FIELDS if f.argument not in ("hidden", "tied"))
TABLE: Table = (
    *gpt2.body("tokens_embed", "positions_embed"), *both("decoder.blocks.{}.attention.after", "transformer.h.{}.ln_1"),
    *both("decoder.blocks.{}.feedforward.after", "transformer.h.{}.ln_2"))

gpt = Family("gpt", "Radford et al. 2018", make, SIZES, "openai-gpt", FIELDS, TABLE, prefix="transformer.",
             heads={"OpenAIGPTLMHeadModel": lambda m, l: Vocabulary(), "OpenAIGPTModel": lambda m, l: Features()})
