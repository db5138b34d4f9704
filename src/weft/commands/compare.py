"""The command `weft compare`: the curves of several runs in one table and picture."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from ..support.console import print_result
from ..support.options.declare import Option
from ..support.options.shared import VerbOptions
from .files import check_output_file, check_outside_model

if TYPE_CHECKING:
    from rich.console import RenderableType as Page

    from ..runs.logs.comparison import RunGroup

SHOWN = 4  # columns of quantities in the printed table
SETTINGS = 12  # rows of the printed table of settings
LONGEST = 48  # characters of a printed setting


@dataclass(frozen=True, kw_only=True)
class CompareOptions(VerbOptions):
    """The options of `weft compare`."""

    run_folders: Annotated[
        Sequence[str], Option("run directories to compare", metavar="RUN", positional=True)
    ]
    output: Annotated[
        str | None,
        Option(
            "image file to write: .png, .svg or .pdf",
            default="no image, only the table",
            metavar="FILE",
            short="-o",
        ),
    ] = None
    quantities: Annotated[
        Sequence[str],
        Option(
            "quantities to compare, such as 'training loss' 'validation loss'",
            default="everything",
            metavar="NAME",
        ),
    ] = ()


def compare(options: CompareOptions) -> int:
    """Compare the curves of several runs, in a table and an image.

    Runs whose recipes differ only in the seed share one curve: their mean with its 95 % interval.
    Training losses and gradient norms are smoothed.
    """
    from ..runs.logs.comparison import (
        compare_runs,
        differing_settings,
        distinct_quantities,
        draw_comparison,
        last_values,
        quantities,
    )
    from ..support.values import to_plain

    check_output_file(options.output)
    for folder in options.run_folders:
        check_outside_model("--output", [options.output], folder)
    groups = compare_runs([Path(folder) for folder in options.run_folders])
    names = quantities(groups)
    unknown = next((name for name in options.quantities if name not in names), None)
    if unknown is not None:
        raise ValueError(f"no run has {unknown!r}; available: {', '.join(map(repr, names))}")
    if options.output:
        draw_comparison(groups, options.output, options.quantities)
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
    columns = list(options.quantities) or distinct[:SHOWN]
    print_result(
        options.json, plain, lambda width: comparison_page(groups, values, columns, settings, width)
    )
    if options.output and not options.json:
        print(f"wrote {options.output}")
    return 0


def comparison_page(
    groups: list["RunGroup"],
    values: dict[str, dict[str, Any]],
    columns: list[str],
    settings: dict[str, tuple[Any, ...]],
    width: int,
) -> "Page":
    """Return the table of last values and the table of settings that differ between recipes."""
    from rich.console import Group

    table = comparison_table(groups, values, columns, width)
    if not settings:
        return table
    return Group(table, "", settings_table(groups, settings))


def settings_table(groups: list["RunGroup"], settings: dict[str, tuple[Any, ...]]) -> "Page":
    """Return the first settings that differ between the recipes, with the value of each group."""
    from rich.table import Table

    from ..support.value_tree import format_inline

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False)
    for name in ("setting", *(group.name for group in groups)):
        table.add_column(name, overflow="fold")
    for path, of_groups in list(settings.items())[:SETTINGS]:
        table.add_row(path, *(shorten(format_inline(value)) for value in of_groups))
    if len(settings) > SETTINGS:
        table.add_row(f"{len(settings) - SETTINGS} more; --json prints all")
    return table


def shorten(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def comparison_table(
    groups: list["RunGroup"], values: dict[str, dict[str, Any]], columns: list[str], width: int
) -> "Page":
    """Return the last value per quantity; ± is half the width of the 95 % interval over seeds."""
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
