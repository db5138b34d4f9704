"""Printed tables, and those of `weft families`, `verify` and `export`."""

from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any

from rich.table import Table

from ..families import families
from ..spec.describe import NO_BREAK_SPACE, short


def plain_table(*columns: str, rows: Sequence[Sequence[str]], width: int) -> Table:
    """Return a table without borders; the second column wraps, numbers are right-aligned."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False)
    for i, column in enumerate(columns):
        numeric = i > 0 and all(row[i][:1].isdigit() for row in rows)
        table.add_column(column, justify="right" if numeric else "left")
    widths = [max(len(row[i]) for row in (columns, *rows)) for i in range(len(columns))]
    taken = sum(2 + column for i, column in enumerate(widths) if i != 1)
    for row, below in zip(rows, (*rows[1:], columns), strict=True):
        text, *more = wrap(row[1], max(width - taken, 24), break_on_hyphens=False) or [""]
        table.add_row(row[0], text.replace(NO_BREAK_SPACE, " "), *row[2:])
        indent = len(below[0]) - len(below[0].lstrip("│├└ "))
        guide = below[0][:indent].replace("├", "│").replace("└", "│")
        for text in more:
            table.add_row(guide, text.replace(NO_BREAK_SPACE, " "))
    return table


def family_sizes() -> list[dict[str, Any]]:
    return [
        {
            "family": family.name,
            "sizes": {size: family.parameter_count(size) for size in family.sizes},
            "paper": family.paper,
        }
        for family in families()
    ]


def families_table(families: list[dict[str, Any]], width: int) -> Table:
    rows = [
        (
            family["family"],
            ", ".join(f"{size}{NO_BREAK_SPACE}{short(n)}" for size, n in family["sizes"].items()),
            family["paper"],
        )
        for family in families
    ]
    return plain_table("family", "sizes and parameters", "paper", rows=rows, width=width)


def differences_table(metrics: Mapping[str, float], checks: Mapping[str, str], width: int) -> Table:
    differences = [(name, f"{difference:.2e}") for name, difference in metrics.items()]
    rows = [*differences, *checks.items()]
    return plain_table("compared", "largest difference", rows=rows, width=width)


def folders_table(folders: Mapping[str, dict[str, Any]], width: int) -> Table:
    rows = [
        (
            action,
            f"{folder['folder']}: {folder['family'] or 'own layout'}, {', '.join(folder['files'])}",
            f"{folder['parameters']:,}",
        )
        for action, folder in folders.items()
    ]
    return plain_table("", "folder", "parameters", rows=rows, width=width)
