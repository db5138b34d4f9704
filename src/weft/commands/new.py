"""`weft new`: a first recipe for the user's own data."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from ..console import count_of, format_duration, format_number, print_result, spinner
from ..options.declare import Option
from ..options.shared import VALID, TableOptions, VerbOptions
from . import head_note
from .files import check_input_files, warn_of_shared_files

if TYPE_CHECKING:
    from ..recipe import Recipe
    from ..spec import Spec
    from .first_recipe import Guess

Objective = Literal["causal-lm", "masked-lm", "span-corruption", "denoising", "replaced-tokens"]
OBJECTIVES = get_args(Objective)
UTILISATION = 0.3  # of the speed of a matrix product, which a step of a small model reaches


@dataclass(frozen=True, kw_only=True)
class NewRecipeOptions(TableOptions, VerbOptions):
    """The options of `weft new`."""

    task: Annotated[
        Literal["translate", "classify", "pretrain", "detect"],
        Option(
            "what the model learns: translate texts, classify texts or images, pretrain on plain text, detect objects",
            positional=True,
        ),
    ]
    data: Annotated[
        Sequence[str],
        Option(
            "a table (CSV, TSV, JSON lines, Parquet); two parallel files; text files, folders of them and patterns; images (Parquet, npz, idx, a folder with one sub-folder per class, or a table that names images and their folder); or COCO's JSON and the folder of its images",
            metavar="DATA",
            positional=True,
        ),
    ]
    objective: Annotated[
        Objective | None,
        Option(
            "what pretrain learns: to continue a text, to fill masks, to write hidden spans, to restore damaged text, or to detect replaced tokens",
            default=OBJECTIVES[0],
        ),
    ] = None
    output: Annotated[
        str | None,
        Option(
            "file of the recipe",
            default="a name after the data, such as reviews.py for reviews.csv",
            metavar="FILE",
            short="-o",
        ),
    ] = None
    valid: Annotated[Sequence[str], replace(VALID, default="a tenth of the data")] = ()


def new(args: NewRecipeOptions) -> int:
    """Write a first recipe for your own data.

    Looks at the files, writes a commented recipe that weft train runs, and prints what it guessed. Example: weft new classify
    reviews.csv
    """
    from .first_recipe import NewOptions, recipe_file, recipe_name

    check_objective(args)
    name = recipe_name(args.data, args.task)
    path = Path(args.output or recipe_file(name))
    if path.suffix != ".py":
        raise ValueError(f"--output {path}: a recipe is a Python file; give a name with .py")
    if path.exists():
        raise ValueError(f"{path} is there already; delete it, or give another name with --output")
    if not path.parent.is_dir():
        raise ValueError(f"--output {path}: there is no folder {path.parent}; make it first")
    check_input_files("new", [*args.data, *args.valid])
    warn_of_shared_files(args.data, args.valid)
    with spinner(f"reading {args.data[0]}"):
        from .guess import guess

        columns = (args.columns, args.column_names, args.max_bad_row_fraction)
        options = NewOptions(name, *columns, args.objective or OBJECTIVES[0])
        first = guess(args.task, args.data, args.valid, options)
        recipe = write_recipe(path, first)
        facts = first.facts | estimate(recipe)
    summary = {"file": str(path), "recipe": recipe.name, "guessed": facts, "use": first.use}
    print_result(args.json, summary, lambda width: page(path, first, facts))
    return 0


def check_objective(args: NewRecipeOptions) -> None:
    """Raise ValueError where no objective is chosen."""
    if args.objective is not None and args.task != "pretrain":
        raise ValueError(
            f"--objective {args.objective}: {args.task} has one objective; leave it out, or give weft new pretrain"
        )


def printable_lines(text: str) -> str:
    """Return a text without control characters, which names and rows of other people may hold."""
    return "".join(c for c in text if c.isprintable() or c == "\n")


def write_recipe(path: Path, first: "Guess") -> "Recipe":
    """Write the recipe and read it back; a file that is no recipe is removed."""
    from ..recipe import load_recipe
    from .recipe_code import recipe_code

    guessed = "\n".join(f"    {name}: {text}" for name, text in first.facts.items())
    docstring = (
        f"{first.title}\n\n    weft train {shlex.quote(str(path))}\n    {first.use}\n\n"
        f"Written by `weft new`, which guessed:\n\n{guessed}"
    )
    text = recipe_code(
        printable_lines(docstring).replace("\\", "/").replace('"""', "'''"),
        first.values,
        first.comments,
        first.constants,
    )
    path.write_text(text, "utf-8")
    try:
        return load_recipe(str(path))
    except ValueError:
        path.unlink()
        raise


def export_fact(spec: "Spec") -> str:
    """Return the layout that the trained model can be exported in."""
    from ..interop.equivalent_specs import find_family

    try:
        text = f"Hugging Face's layout, as {find_family(spec).family.name}"
    except ValueError:
        return "Weft's own layout alone; no other library opens the trained model"
    return f"{text}; {note}" if (note := head_note(spec)) else text


def estimate(recipe: "Recipe") -> dict[str, str]:
    """Return the size of the model, what opens it, and what the run costs on this machine, about."""
    from ..recipe.cost import run_flops
    from ..training.machine import speed

    flops = run_flops(recipe)
    seconds = flops / (UTILISATION * speed(recipe.precision))
    duration = f"about {format_duration(seconds)}" if seconds >= 1 else "under a second"
    return {
        "model": f"{recipe.model.parameter_count():,} parameters",
        "export": export_fact(recipe.model),
        "cost": f"{count_of(recipe.steps, 'step')}, {format_number(flops, 'FLOP')}: {duration} here",
    }


def page(path: Path, first: "Guess", facts: dict[str, str]) -> Any:
    from rich.console import Group
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    for name, text in facts.items():
        table.add_row(name, text)
    return Group(
        f"{path} is written; this was guessed, and every line of the file is yours to change:",
        "",
        table,
        "",
        f"weft train {shlex.quote(str(path))}",
        first.use,
    )
