"""Model families: one module per architecture with its size table, spec function and weight
table.
"""

from ..spec import Spec
from ..support.registry import named, names, register_named
from ..support.synonyms import suggest
from .base import ACTIVATION_CODEC, Codec, ConfigField, Family, LabelNames, size_table
from .weights import SkippedWeight, WeightAlias, WeightRow, layer_rows, weight_and_bias

__all__ = [
    "ACTIVATION_CODEC",
    "Codec",
    "ConfigField",
    "Family",
    "LabelNames",
    "SkippedWeight",
    "WeightAlias",
    "WeightRow",
    "families",
    "family",
    "family_names",
    "layer_rows",
    "size_table",
    "spec_of_name",
    "training_length_of_name",
    "weight_and_bias",
]
_SHARED_FILES = {"t5_v1_1": "t5", "mt5": "t5", "byt5": "t5"}
for _name in (
    "transformer",
    "marian",
    "pegasus",
    "bert",
    "roberta",
    "electra",
    "modernbert",
    "gpt",
    "gpt2",
    "gpt3",
    "bloom",
    "llama",
    "mistral",
    "mixtral",
    "gpt_neox",
    "palm",
    "starcoder2",
    "gemma2",
    "qwen3",
    "olmo2",
    "t5",
    "t5_v1_1",
    "mt5",
    "byt5",
    "bart",
    "vit",
    "deit",
    "mae",
    "dinov2",
    "swin",
    "cct",
    "detr",
    "dab_detr",
):
    register_named(Family, _name, f"{__name__}.{_SHARED_FILES.get(_name, _name)}:{_name}")


def family(name: str) -> Family:
    """Return the family registered as `name`; imports its module if needed."""
    registered: Family = named(Family, name)
    return registered


def family_names() -> list[str]:
    """Return the names of all families, user-defined ones last, without importing their modules."""
    return names(Family)


def families() -> list[Family]:
    """Return all families; imports their modules if needed."""
    return [family(name) for name in family_names()]


def training_length_of_name(name: str) -> int | None:
    """Return the tokens per row that a preset such as `llama-7b` was trained with; None if unknown
    or not a preset.
    """
    for preset in families():
        size = name.removeprefix(f"{preset.name}-")
        if size != name and size in preset.sizes:
            length = preset.training_length
            return length if isinstance(length, int) or length is None else length.get(size)
    return None


def spec_of_name(name: str) -> tuple[str, Spec]:
    """Return the full name and the spec of a preset: `family-size`, or a family for its first
    size.
    """
    presets = {f"{f.name}-{size}": (f, size) for f in families() for size in f.sizes}
    first = f"{name}-{next(iter(family(name).sizes))}" if name in family_names() else name
    if first in presets:
        preset, size = presets[first]
        return first, preset(size)
    near = suggest(name.lower(), [*family_names(), *presets])
    raise ValueError(
        f"{name!r} is not a family, a preset or a directory; "
        f"{near if near.startswith('did') else 'see weft families'}"
    )
