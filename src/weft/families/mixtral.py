"""Mixtral: Mistral with a mixture of experts, two of eight per token (Jiang et al. 2024,
arXiv:2401.04088).
"""

from dataclasses import replace
from typing import Any

from ..spec import GatedMLP, MixtureOfExperts, Spec
from . import llama
from .base import ACTIVATION_CODEC, ConfigField, Family, size_table
from .llama import ATTENTION, CORE, ENDS, HIDDEN, heads
from .mistral import WINDOW
from .weights import WeightRow, WeightTable, layer_rows

SIZES = size_table(
    "depth width heads kv_heads hidden experts top_k theta eps",
    _8x7b=(32, 4096, 32, 8, 14336, 8, 2, 1e6, 1e-5),
    _8x22b=(56, 6144, 48, 8, 16384, 8, 2, 1e6, 1e-5),
)


def make(
    hidden: int,
    experts: int = 8,
    top_k: int = 2,
    activation: Any = "silu",
    load_balance_weight: float = 0.02,
    router_z_weight: float = 0.0,
    **rest: Any,
) -> Spec:
    expert = GatedMLP(hidden=hidden, activation=activation, bias=False)
    return llama.make(
        hidden=hidden,
        **rest,
        feedforward=MixtureOfExperts(
            experts=experts,
            top_k=top_k,
            expert=expert,
            load_balance_weight=load_balance_weight,
            router_z_weight=router_z_weight,
        ),
    )


DEFAULTS = {"theta": 1e6, "eps": 1e-5}
# used in training only; config.json has no key for it
FIELDS = (
    *(replace(f, default=DEFAULTS.get(f.argument, f.default)) for f in CORE),
    WINDOW,
    ConfigField("hidden", "intermediate_size", f"{HIDDEN}.expert.hidden", 14336),
    ConfigField("experts", "num_local_experts", f"{HIDDEN}.experts", 8),
    ConfigField("top_k", "num_experts_per_tok", f"{HIDDEN}.top_k", 2),
    ConfigField(
        "activation", "hidden_act", f"{HIDDEN}.expert.activation", "silu", ACTIVATION_CODEC
    ),
    ConfigField(
        "load_balance_weight", "router_aux_loss_coef", f"{HIDDEN}.load_balance_weight", 0.001
    ),
    ConfigField("router_z_weight", (), f"{HIDDEN}.router_z_weight", 0.0),
)

OURS = "decoder.blocks.{}.feedforward.inner."
THEIRS = "model.layers.{}.block_sparse_moe."
TABLE: WeightTable = (
    *ENDS,
    *layer_rows("decoder.blocks.{}", "model.layers.{}", ATTENTION),
    WeightRow(OURS + "router.weight", THEIRS + "gate.weight"),
    *(
        WeightRow(f"{OURS}{ours}.weight", f"{THEIRS}experts.{{e}}.{theirs}.weight", "stacked")
        for ours, theirs in (("gate", "w1"), ("down", "w2"), ("up", "w3"))
    ),
)

mixtral = Family(
    "mixtral",
    "arXiv:2401.04088",
    make,
    SIZES,
    "mixtral",
    FIELDS,
    TABLE,
    prefix="model.",
    context_length_key="max_position_embeddings",
    heads=heads("Mixtral"),
    training_length={"8x7b": 32_768},
)
