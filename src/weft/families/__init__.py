"""One file per architecture: size table, spec function, weight table."""
from importlib import import_module
from typing import TYPE_CHECKING

from ..values import suggest

if TYPE_CHECKING:
    from ..spec import Model
    from ..weights import Family

NAMES = ("transformer", "marian", "pegasus", "bert", "roberta", "electra", "modernbert", "gpt", "gpt2", "gpt3", "bloom", "llama",
         "mistral", "mixtral", "gpt_neox", "starcoder2", "gemma2", "qwen3", "olmo2", "t5", "t5_v1_1", "mt5", "byt5", "bart", "vit", "deit",
         "mae", "dinov2", "swin", "detr")
FILES = {"t5_v1_1": "t5", "mt5": "t5", "byt5": "t5"}


def family(name: str) -> "Family":
    if name not in NAMES:
        raise ValueError(f"no family {name!r}; {suggest(name, list(NAMES))}")
    module = import_module(f".{FILES.get(name, name)}", __name__)
    found: Family = getattr(module, name)
    return found


def families() -> "list[Family]":
    return [family(name) for name in NAMES]


def preset(name: str) -> "tuple[str, Model]":
    """The full name and the spec behind `family-size`, or behind a family's first size: presets have no other names on a command line."""
    known = {f"{f.name}-{size}": (f, size) for f in families() for size in f.sizes}
    first = f"{name}-{next(iter(family(name).sizes))}" if name in NAMES else name
    if first in known:
        found, size = known[first]
        return first, found(size)
    near = suggest(name.lower(), [*NAMES, *known])
    raise ValueError(f"no family, size or folder is called {name!r}; {near if near.startswith('did') else 'see weft families'}")
