"""Weight tables: rows that bind our parameters to the names in published files."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class WeightRow:
    """Our tensors are theirs, under other names. `{}` is an index; several names are stacked along
    the first axis; `how` names an invertible function of `interop.convert`.
    """

    ours: str | tuple[str, ...]
    theirs: str | tuple[str, ...]
    transform: str = "same"
    only_for: str = ""  # only where the head or a feed-forward layer is of one of these kinds


@dataclass(frozen=True)
class SkippedWeight:
    """A foreign tensor that we do not need, and why."""

    theirs: str
    reason: str


@dataclass(frozen=True)
class WeightAlias:
    """A second foreign name for one tensor: must be equal where it stands in a file, unless its
    part is made fresh; never written.
    """

    theirs: str
    of: str
    part: str = "head"


WeightTable = tuple[WeightRow | SkippedWeight | WeightAlias, ...]


def weight_and_bias(
    ours: str | tuple[str, ...], theirs: str, transform: str = "same", when: str = ""
) -> tuple[WeightRow, WeightRow]:
    """The weight and the bias of one linear map or norm."""
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
    """Weights and biases of all the parts of one layer."""
    return tuple(
        row
        for o, t in names.items()
        for row in weight_and_bias(f"{ours}.{o}", f"{theirs}.{t}", transform)
    )
