"""Weight tables: rows that map Weft's parameters to tensor names in published files."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class WeightRow:
    """A row for tensors with other names in the file. `{}` is an index; several names are stacked
    along the first axis; `how` names an invertible function of `weft.interop.huggingface.convert`.
    """

    ours: str | tuple[str, ...]
    theirs: str | tuple[str, ...]
    transform: str = "same"
    only_for: str = ""  # the types of head or feed-forward layer that have the tensor


@dataclass(frozen=True)
class SkippedWeight:
    """A tensor of the file that Weft does not load, and the reason."""

    theirs: str
    reason: str


@dataclass(frozen=True)
class WeightAlias:
    """A second name of a tensor. If the file has it, it must be equal unless its part is newly
    initialised; it is never written.
    """

    theirs: str
    of: str
    part: str = "head"


WeightTable = tuple[WeightRow | SkippedWeight | WeightAlias, ...]


def weight_and_bias(
    ours: str | tuple[str, ...], theirs: str, transform: str = "same", when: str = ""
) -> tuple[WeightRow, WeightRow]:
    """Yield the weight and bias of one linear map or norm."""
    names = (ours,) if isinstance(ours, str) else ours
    return (
        WeightRow(tuple(f"{n}.weight" for n in names), f"{theirs}.weight", transform, when),
        WeightRow(
            tuple(f"{n}.bias" for n in names),
            f"{theirs}.bias",
            transform if transform == "by_head" else "same",
            when,
        ),
    )


def layer_rows(
    ours: str, theirs: str, names: Mapping[str, str], transform: str = "same"
) -> tuple[WeightRow, ...]:
    """Yield weights and biases of all parts of one layer."""
    return tuple(
        row
        for o, t in names.items()
        for row in weight_and_bias(f"{ours}.{o}", f"{theirs}.{t}", transform)
    )
