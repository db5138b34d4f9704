"""Mixtral: Mistral whose feed-forward is two of eight experts (Jiang et al. 2024, arXiv:2401.04088)."""
from dataclasses import replace
from typing import Any

from ..spec import Experts, Gated, Model
from ..weights import ACTIVATION, Family, Field, Row, Table, layer, sizes
from . import llama
from .llama import ATTENTION, CORE, ENDS, HIDDEN, heads
from .mistral import WINDOW

SIZES = sizes("depth width heads groups hidden experts chosen theta eps", _8x7b=(32, 4096, 32, 8, 14336, 8, 2, 1e6, 1e-5),
              _8x22b=(56, 6144, 48, 8, 16384, 8, 2, 1e6, 1e-5))


def make(hidden: int, experts: int = 8, chosen: int = 2, activation: Any = "swish", balance: float = 0.02, z_loss: float = 0.0,
         **rest: Any) -> Model:
    expert = Gated(hidden=hidden, activation=activation, bias=False)
    return llama.make(hidden=hidden, **rest, feedforward=Experts(
        count=experts, chosen=chosen, expert=expert, balance=balance, z_loss=z_loss))


DEFAULTS = {"theta": 1e6, "eps": 1e-5}
FIELDS = (
    *(replace(f, default=DEFAULTS.get(f.argument, f.default)) for f in CORE), WINDOW,
    Field("hidden", "intermediate_size", f"{HIDDEN}.expert.hidden", 14336),
    Field("experts", "num_local_experts", f"{HIDDEN}.count", 8), Field("chosen", "num_experts_per_tok", f"{HIDDEN}.chosen", 2),
    Field("activation", "hidden_act", f"{HIDDEN}.expert.activation", "swish", ACTIVATION),
    Field("balance", "router_aux_loss_coef", f"{HIDDEN}.balance", 0.001),
    Field("z_loss", (), f"{HIDDEN}.z_loss", 0.0))              # acts in training only; config.json has no key for it

OURS, THEIRS = "decoder.blocks.{}.feedforward.inner.", "model.layers.{}.block_sparse_moe."
TABLE: Table = (
    *ENDS, *layer("decoder.blocks.{}", "model.layers.{}", ATTENTION), Row(OURS + "router.weight", THEIRS + "gate.weight"),
    *(Row(f"{OURS}{ours}.weight", f"{THEIRS}experts.{{e}}.{theirs}.weight", "stacked")
      for ours, theirs in (("gate", "w1"), ("down", "w2"), ("up", "w3"))))

mixtral = Family("mixtral", "arXiv:2401.04088", make, SIZES, "mixtral", FIELDS, TABLE, prefix="model.",
                 context="max_position_embeddings", heads=heads("Mixtral"))
