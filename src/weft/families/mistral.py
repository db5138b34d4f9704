"""Mistral: Llama that looks back through a window (Jiang et al. 2023, arXiv:2310.06825)."""
from ..spec import Model, Window, at
from ..weights import ACTIVATION, Family, Field, sizes
from .llama import CORE, HIDDEN, LOOK, TABLE, heads, make


def window(m: Model) -> int | None:
    pattern = at(m, f"{LOOK}.pattern")
    return pattern.before + 1 if isinstance(pattern, Window) else None


WINDOW = Field("window", "sliding_window", window)
FIELDS = (*CORE, WINDOW, Field("hidden", "intermediate_size", f"{HIDDEN}.hidden", 14336),
          Field("activation", "hidden_act", f"{HIDDEN}.activation", "swish", ACTIVATION))

mistral = Family("mistral", "arXiv:2310.06825", make, sizes("depth width heads groups hidden vocabulary window eps",
                                                            _7b=(32, 4096, 32, 8, 14336, 32000, 4096, 1e-5)),
                 "mistral", FIELDS, TABLE, prefix="model.", context="max_position_embeddings", heads=heads("Mistral"))
