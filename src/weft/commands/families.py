"""The page of `weft families`."""

from typing import TYPE_CHECKING, Any

from ..families import families
from ..spec.describe import NO_BREAK_SPACE, short
from .tables import plain_table

if TYPE_CHECKING:
    from rich.console import RenderableType as Page


def family_sizes() -> list[dict[str, Any]]:
    return [
        {
            "family": f.name,
            "sizes": {size: f.parameter_count(size) for size in f.sizes},
            "paper": f.paper,
        }
        for f in families()
    ]


def families_table(families: list[dict[str, Any]], width: int) -> "Page":
    rows = [
        (
            f["family"],
            ", ".join(f"{s}{NO_BREAK_SPACE}{short(n)}" for s, n in f["sizes"].items()),
            f["paper"],
        )
        for f in families
    ]
    return plain_table("family", "sizes and parameters", "paper", rows=rows, width=width)
