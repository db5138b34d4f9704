"""Weft: every Transformer, woven from one block."""
from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from .interop.folder import load, save
    from .model.model import Model, build

# Nothing heavy is imported before it is asked for: `import weft` and `weft --help` answer at once.
_TORCH = {"load": "interop.folder", "save": "interop.folder", "build": "model.model", "Model": "model.model",
          "attention_maps": "observe.attention"}
__all__ = ["Model", "attention_maps", "build", "family", "load", "recipe", "save", "spec"]


def __getattr__(name: str) -> Any:
    if name in _TORCH:
        return getattr(import_module(f".{_TORCH[name]}", __name__), name)
    if name.startswith("_"):
        raise AttributeError(name)
    if name == "recipe":
        return import_module(".recipe", __name__)
    families, spec = import_module(".families", __name__), import_module(".spec", __name__)
    if name in families.NAMES:
        return families.family(name)
    known = {"family": families.family, "spec": spec, "families": families}
    if name in known or name in spec.__all__:
        return known.get(name) or getattr(spec, name)
    if name[0].isupper() and isinstance(getattr(import_module(".recipe", __name__), name, None), type):
        raise AttributeError(f"weft has no {name!r}; it is weft.recipe.{name}")
    from .words import meant
    near = meant(name, __dir__())
    raise AttributeError(f"weft has no {name!r}; " + (f"did you mean {near!r}?" if near else "see dir(weft)"))


def __dir__() -> list[str]:
    families, spec = import_module(".families", __name__), import_module(".spec", __name__)
    return sorted({*__all__, *families.NAMES, *spec.__all__})
