"""`weft compare`."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..console import print_result
from . import AddCommand
from .rows import check_output_file, check_outside_model

if TYPE_CHECKING:
    from rich.console import RenderableType as Page

    from ..runs.comparison import RunGroup

SHOWN = 4  # columns of numbers on a screen
SETTINGS = 12  # rows of settings on a screen
LONGEST = 48  # characters of a setting


def compare(args: argparse.Namespace) -> int:
    from ..runs.comparison import (
        compare_runs,
        differing_settings,
        distinct_quantities,
        draw_comparison,
        last_values,
        quantities,
    )
    from ..values import to_plain

    check_output_file(args.output)
    for folder in args.run_folders:
        check_outside_model("--output", [args.output], folder)
    groups = compare_runs([Path(folder) for folder in args.run_folders])
    names = quantities(groups)
    unknown = next((name for name in args.quantities if name not in names), None)
    if unknown is not None:
        raise ValueError(f"no run has {unknown!r}; there are {', '.join(map(repr, names))}")
    if args.output:
        draw_comparison(groups, args.output, args.quantities)
    settings = differing_settings(groups)
    values = {group.name: {name: last_values(group, name) for name in names} for group in groups}
    plain = [
        {
            "name": group.name,
            "runs": group.runs,
            "settings": {path: to_plain(of_groups[i]) for path, of_groups in settings.items()},
            "last": {
                name: {"mean": value[0], "half_width": value[1]}
                for name, value in values[group.name].items()
                if value is not None
            },
        }
        for i, group in enumerate(groups)
    ]
    distinct = [name for name in distinct_quantities(groups) if name != "learning rate"]
    columns = args.quantities or distinct[:SHOWN]
    print_result(
        args, plain, lambda width: comparison_page(groups, values, columns, settings, width)
    )
    if args.output and not args.json:
        print(f"drawn in {args.output}")
    return 0


def comparison_page(
    groups: list["RunGroup"],
    values: dict[str, dict[str, Any]],
    columns: list[str],
    settings: dict[str, tuple[Any, ...]],
    width: int,
) -> "Page":
    """The table of last values, and one of the settings in which the recipes differ."""
    from rich.console import Group

    table = comparison_table(groups, values, columns, width)
    if not settings:
        return table
    return Group(table, "", settings_table(groups, settings))


def settings_table(groups: list["RunGroup"], settings: dict[str, tuple[Any, ...]]) -> "Page":
    """The first settings in which the recipes differ, with the value of each group."""
    from rich.table import Table

    from ..values import format_inline

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False)
    for name in ("setting", *(group.name for group in groups)):
        table.add_column(name, overflow="fold")
    for path, of_groups in list(settings.items())[:SETTINGS]:
        table.add_row(path, *(shorten(format_inline(value)) for value in of_groups))
    if len(settings) > SETTINGS:
        table.add_row(f"{len(settings) - SETTINGS} more: --json")
    return table


def shorten(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def comparison_table(
    groups: list["RunGroup"], values: dict[str, dict[str, Any]], columns: list[str], width: int
) -> "Page":
    """The last value of each quantity; ± is half the width of the 95 % interval over seeds."""
    from ..spec.describe import NO_BREAK_SPACE
    from .tables import plain_table

    def cell(value: tuple[float, float | None] | None) -> str:
        if value is None:
            return "–"
        return f"{value[0]:.4g}" + ("" if value[1] is None else f" ± {value[1]:.2g}")

    rows = [
        (
            group.name.replace(" ", NO_BREAK_SPACE),
            *(cell(values[group.name][name]) for name in columns),
        )
        for group in groups
    ]
    return plain_table("run", *columns, rows=rows, width=width)


def add(verb: AddCommand) -> None:
    parser = verb(
        compare,
        "compare the curves of several runs, in a table and a picture",
        "Runs whose recipes differ in nothing but the seed are one curve: their mean, with its 95 % interval. Training losses and "
        "gradient norms are smoothed.",
    )
    parser.add_argument("run_folders", metavar="RUN", nargs="+", help="folder of a run")
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="picture to write: .png, .svg or .pdf (default: only a table)",
    )
    parser.add_argument(
        "--quantities",
        nargs="+",
        default=[],
        metavar="NAME",
        help="what to compare, such as 'training loss' 'validation loss' (default: everything)",
    )
