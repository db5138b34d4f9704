"""Weft: every Transformer, woven from one block."""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

# Packages are imported on use, so that `import weft` and `weft --help` are fast.
# `__init__.pyi` declares the same names for editors and type checkers; a test compares both.
_LATE = {
    "evaluate": "api",
    "load_recipe": "api",
    "look": "api",
    "open": "api",
    "open_table": "api_tables",
    "suggest_recipe": "api_tables",
    "Budget": "suggest.suggestion",
    "open_prepared": "api",
    "prepare": "api",
    "PreparedData": "data.preparing.prepared",
    "train": "api",
    "tune": "api",
    "RunStopped": "runs.train",
    "OpenModel": "inference.open_model",
    "Table": "data.reading.table",
    "Sampling": "generate.sampling",
    "build": "nn.model",
    "Model": "nn.model",
    "load": "interop.loading",
    "save": "interop.saving",
    "attention_maps": "observe.attention",
    "Family": "families",
    "family": "families",
    "implements": "support.registry",
    "register": "support.registry",
    "Batching": "recipe",
    "Deduplication": "recipe",
    "Format": "recipe.data.formats",
    "Logger": "recipe",
    "Metric": "recipe.metrics",
    "OptimiserSpec": "recipe",
    "QualityFilter": "recipe",
    "Recipe": "recipe",
    "RowSchema": "recipe",
    "Schedule": "recipe",
    "Task": "recipe",
    "TokenizerSpec": "recipe",
    "Trainable": "recipe",
    "Transform": "recipe",
    "WeightAverage": "recipe",
    "AttentionBackend": "nn.kernels.attention",
    "PatternBackend": "nn.kernels.attention",
    "PatternMask": "nn.kernels.masks",
    "Positions": "nn.kernels.masks",
    "Role": "nn.layers.roles",
    "with_role": "nn.layers.roles",
    "SelfAttention2d": "nn.layers.images.self_attention_2d",
}
_MODULES = ("families", "observe", "recipe", "spec", "testing")


def __getattr__(name: str) -> Any:
    if name in _LATE:
        return getattr(import_module(f".{_LATE[name]}", __name__), name)
    if name.startswith("_"):
        raise AttributeError(name)
    if name in _MODULES:
        return import_module(f".{name}", __name__)
    families = import_module(".families", __name__)
    spec = import_module(".spec", __name__)
    if name in families.family_names():
        return families.family(name)
    if name in spec.__all__:
        return getattr(spec, name)
    if name[0].isupper() and isinstance(
        getattr(import_module(".recipe", __name__), name, None), type
    ):
        raise AttributeError(f"weft has no {name!r}; use weft.recipe.{name}")
    from .support.synonyms import closest_name

    near = closest_name(name, __dir__())
    raise AttributeError(
        f"weft has no {name!r}; " + (f"did you mean {near!r}?" if near else "see dir(weft)")
    )


def __dir__() -> list[str]:
    families = import_module(".families", __name__)
    spec = import_module(".spec", __name__)
    return sorted({*_LATE, *_MODULES, *families.family_names(), *spec.__all__})
