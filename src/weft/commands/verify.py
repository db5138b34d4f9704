"""The page of `weft verify`."""

from typing import TYPE_CHECKING

from .tables import plain_table

if TYPE_CHECKING:
    from rich.console import RenderableType as Page


def differences_table(metrics: dict[str, float], checks: dict[str, str], width: int) -> "Page":
    return plain_table(
        "compared",
        "largest difference",
        rows=[*((name, f"{d:.2e}") for name, d in metrics.items()), *checks.items()],
        width=width,
    )
