"""`weft compare`."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..console import print_result
from . import AddCommand
from .rows import check_output_file

if TYPE_CHECKING:
    from rich.console import RenderableType as Page

    from ..runs.comparison import RunGroup

SHOWN = 4  # columns of numbers on a screen


def compare(args: argparse.Namespace) -> int:
    from ..runs.comparison import compare_runs, draw_comparison, last_values, quantities

    check_output_file(args.output)
    groups = compare_runs([Path(folder) for folder in args.run_folders])
    names = quantities(groups)
    unknown = next((name for name in args.quantities if name not in names), None)
    if unknown is not None:
        raise ValueError(f"no run has {unknown!r}; there are {', '.join(map(repr, names))}")
    if args.output:
        draw_comparison(groups, args.output, args.quantities)
    values = {group.name: {name: last_values(group, name) for name in names} for group in groups}
    plain = [
        {
            "name": group.name,
            "runs": group.runs,
            "last": {
                name: {"mean": value[0], "half_width": value[1]}
                for name, value in values[group.name].items()
                if value is not None
            },
        }
        for group in groups
    ]
    columns = args.quantities or [name for name in names if name != "learning rate"][:SHOWN]
    print_result(args, plain, lambda width: comparison_table(groups, values, columns, width))
    if args.output and not args.json:
        print(f"drawn in {args.output}")
    return 0


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
