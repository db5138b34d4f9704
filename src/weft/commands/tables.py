"""Tables on the screen."""

from collections.abc import Sequence
from textwrap import wrap
from typing import TYPE_CHECKING

from ..spec.describe import NO_BREAK_SPACE

if TYPE_CHECKING:
    from rich.console import RenderableType as Page

# Pages


def plain_table(*columns: str, rows: Sequence[Sequence[str]], width: int) -> "Page":
    """Return a table without lines: the second column wraps, numbers are right-aligned."""
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False)
    for i, column in enumerate(columns):
        table.add_column(
            column, justify="right" if i and all(row[i][:1].isdigit() for row in rows) else "left"
        )
    taken = sum(
        2 + max(len(row[i]) for row in (columns, *rows)) for i in range(len(columns)) if i != 1
    )
    for row, below in zip(rows, (*rows[1:], columns), strict=True):
        text, *more = wrap(row[1], max(width - taken, 24), break_on_hyphens=False) or [""]
        table.add_row(row[0], text.replace(NO_BREAK_SPACE, " "), *row[2:])
        guide = (
            below[0][: len(below[0]) - len(below[0].lstrip("│├└ "))]
            .replace("├", "│")
            .replace("└", "│")
        )
        for text in more:
            table.add_row(guide, text.replace(NO_BREAK_SPACE, " "))
    return table
