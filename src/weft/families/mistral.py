"""Mistral: Llama with sliding-window attention (Jiang et al. 2023, arXiv:2310.06825)."""

from ..spec import SlidingWindow, Spec
from ..support.values import get_path
from .base import ACTIVATION_CODEC, ConfigField, Family, size_table
from .llama import ATTEND, CORE, HIDDEN, TABLE, heads, make


def window(spec: Spec) -> int | None:
    pattern = get_path(spec, f"{ATTEND}.pattern")
    return pattern.before + 1 if isinstance(pattern, SlidingWindow) else None


WINDOW = ConfigField("window", "sliding_window", window)
FIELDS = (
    *CORE,
    WINDOW,
    ConfigField("hidden", "intermediate_size", f"{HIDDEN}.hidden", 14336),
    ConfigField("activation", "hidden_act", f"{HIDDEN}.activation", "silu", ACTIVATION_CODEC),
)

mistral = Family(
    "mistral",
    "arXiv:2310.06825",
    make,
    size_table(
        "depth width heads kv_heads hidden vocab_size window eps",
        _7b=(32, 4096, 32, 8, 14336, 32000, 4096, 1e-5),
    ),
    "mistral",
    FIELDS,
    TABLE,
    prefix="model.",
    context_length_key="max_position_embeddings",
    heads=heads("Mistral"),
    training_length=8192,
)
