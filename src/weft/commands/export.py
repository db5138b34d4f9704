"""The page of `weft export`."""

from typing import TYPE_CHECKING, Any

from .tables import plain_table

if TYPE_CHECKING:
    from rich.console import RenderableType as Page


def folders_table(folders: dict[str, dict[str, Any]], width: int) -> "Page":
    rows = [
        (
            did,
            f"{f['folder']}: {f['family'] or 'own layout'}, {', '.join(f['files'])}",
            f"{f['parameters']:,}",
        )
        for did, f in folders.items()
    ]
    return plain_table("", "folder", "parameters", rows=rows, width=width)
