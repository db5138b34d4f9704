"""The command `weft new`: a first recipe for the user's own data."""

import os
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.metadata import packages_distributions
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from ..support.console import count_of, format_duration, format_number, print_result, spinner
from ..support.options.declare import Option
from ..support.options.shared import VALID, TableOptions, VerbOptions
from . import head_note
from .files import check_input_files, warn_of_shared_files

if TYPE_CHECKING:
    from ..spec import Spec
    from ..suggest.suggestion import Suggestion

FROM_SCRATCH = ("pretrain", "translate", "detect")  # tasks without fine-tuning
COMMON_STEMS = {"train", "training", "data", "dataset", "all", "input", "corpus", "annotations"}
UTILISATION = 0.3  # fraction of the matrix-product speed that a small model reaches


@dataclass(frozen=True, kw_only=True)
class NewRecipeOptions(TableOptions, VerbOptions):
    """The options of `weft new`."""

    task: Annotated[
        str | None,
        Option(
            "task to learn: classify (texts or images), pair, regress, choose, tag, "
            "answer, text2text, translate, "
            "pretrain (on plain text), detect (objects), or a user-defined task",
            default="detected",
            metavar="TASK",
            positional=True,
        ),
    ] = None
    data: Annotated[
        Sequence[str],
        Option(
            "input data: a table (CSV, TSV, JSON lines, Parquet); two parallel files; text files, "
            "folders or glob patterns; images (Parquet, npz, idx, a folder with one sub-folder per "
            "class, or a table of image names and their folder); or COCO JSON and its folder of "
            "images",
            metavar="DATA",
            positional=True,
        ),
    ]
    objective: Annotated[
        str | None,
        Option(
            "objective of pretrain: causal-lm (continue a text), masked-lm (fill masks), "
            "span-corruption (write hidden spans), "
            "denoising (restore damaged text), or replaced-tokens (detect replaced tokens)",
            default="causal-lm",
            metavar="OBJECTIVE",
        ),
    ] = None
    output: Annotated[
        str | None,
        Option(
            "recipe file to write",
            default="the name of the data, such as reviews.py for reviews.csv",
            metavar="FILE",
            short="-o",
        ),
    ] = None
    valid: Annotated[Sequence[str], replace(VALID, default="a tenth of the data")] = ()
    checkpoint: Annotated[
        str | None,
        Option(
            "model to fine-tune: a run, a model folder or a hub name",
            default="random weights",
            metavar="MODEL",
            flag="from",
        ),
    ] = None


def new(options: NewRecipeOptions) -> int:
    """Write a first recipe for your own data.

    Inspects the files, writes a commented recipe for weft train, and prints the inferred settings.
    Example: weft new classify reviews.csv
    """
    from ..plan.cost import run_flops

    options = with_task(options)
    check_objective(options)
    path, name = output_file(options)
    check_input_files("weft new", [*options.data, *options.valid])
    with spinner(f"reading {options.data[0]}"):
        suggestion = suggest_for(options).named(name)
        write_recipe(path, suggestion)
        recipe = suggestion.recipe
        facts = suggestion.facts | model_facts(recipe.model)
        facts |= cost_fact(run_flops(recipe), recipe.steps, recipe.precision)
    warn_of_shared_files(options.data, options.valid)
    summary = {"file": str(path), "recipe": name, "guessed": facts, "use": suggestion.use}
    print_result(options.json, summary, lambda width: page(path, suggestion, facts))
    return 0


def with_task(options: NewRecipeOptions) -> NewRecipeOptions:
    """Return the options with `task` set if the first word names a task; otherwise the first word
    is a file.

    Raises:
        ValueError: if it is neither, or if no file is given.
    """
    from ..recipe import tunable_names
    from ..support.synonyms import suggest

    offered = [*FROM_SCRATCH, *tunable_names()]
    # An option between them leaves the task among the files
    first, *others = [*([options.task] if options.task else []), *options.data]
    if first in offered:
        if not others:
            raise ValueError(f"weft new {first}: give the data files too")
        return replace(options, task=first, data=others)
    if not re.search(r"[./*:]", first) and not os.path.exists(first):
        raise ValueError(f"weft new {first}: {suggest(first, offered)}")
    return replace(options, task=None, data=(first, *others))


def check_objective(options: NewRecipeOptions) -> None:
    """Raise ValueError for an unknown objective, or for one given with another task."""
    if options.objective is None:
        return
    from ..suggest.pretrain import OBJECTIVES
    from ..support.synonyms import suggest

    if options.objective not in OBJECTIVES:
        raise ValueError(
            f"--objective {options.objective}: {suggest(options.objective, OBJECTIVES)}"
        )
    if options.task not in (None, "pretrain"):
        raise ValueError(
            f"--objective {options.objective}: {options.task} has one objective; remove it, "
            "or use weft new pretrain"
        )


def output_file(options: NewRecipeOptions) -> tuple[Path, str]:
    """Return the recipe file and the name of its run, which is the file's name if the user gives
    one.

    Raises:
        ValueError: if the file cannot be written, or if a run with its name exists.
    """
    name = plain_name(Path(options.output).stem) if options.output else ""
    run = name or recipe_name(options.data, options.task)
    path = Path(options.output or recipe_file(run))
    if path.suffix != ".py":
        raise ValueError(
            f"--output {path}: a recipe is a Python file; give a name that ends in .py"
        )
    if path.exists():
        raise ValueError(f"{path} already exists; delete it, or give another file with --output")
    if not path.parent.is_dir():
        raise ValueError(f"--output {path}: {path.parent} does not exist; create it first")
    if Path("runs", run).exists():
        raise ValueError(
            f"--output {path}: the run runs/{run} already exists; give another name, or delete "
            "that run"
        )
    return path, run


def suggest_for(options: NewRecipeOptions) -> "Suggestion":
    """Return the recipe for the user's files."""
    from ..suggest.checkpoint import open_checkpoint
    from ..suggest.opening import Reading, open_tables
    from ..suggest.suggest import suggest

    task = options.objective or options.task
    checkpoint = open_checkpoint(options.checkpoint) if options.checkpoint else None
    reading = Reading(
        options.columns, options.column_names, max_bad_rows=options.max_bad_row_fraction
    )
    tables = open_tables(options.data, options.valid, reading, task, checkpoint)
    return suggest(tables, task, checkpoint)


def recipe_name(data: Sequence[str], task: str | None) -> str:
    """Return a name for the run, from the data paths that the user typed.

    Uses the first path or, if that is a pattern or a name like train.csv, its folder; several
    texts in a folder elsewhere have the folder's name. Adds a number if such a run exists.
    """
    place = Path(os.path.abspath(data[0]))
    if task == "pretrain" and len(data) > 1 and place.parent != Path.cwd():
        place = place.parent
    stems = [
        plain_name(name) for name in (place.name.split(".")[0], *(p.name for p in place.parents))
    ]
    name = next((stem for stem in stems if stem and stem.lower() not in COMMON_STEMS), "mine")
    others = (f"{name}-{number}" for number in count(2))
    return next(free for free in chain([name], others) if not Path("runs", free).exists())


def recipe_file(name: str) -> str:
    """Return the file of a recipe; its name does not shadow a module that Python imports."""
    modules = {*sys.stdlib_module_names, *packages_distributions()}
    return f"{name}-recipe.py" if name in modules else f"{name}.py"


def plain_name(name: str) -> str:
    """Return a name without the wildcards of a pattern such as train-*."""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", name).strip("-._")


def printable_lines(text: str) -> str:
    """Return a text without control characters, which names and rows may contain."""
    return "".join(c for c in text if c.isprintable() or c == "\n")


def write_recipe(path: Path, suggestion: "Suggestion") -> None:
    """Write the recipe and load it; remove a file that does not load."""
    from ..recipe import load_recipe
    from ..suggest.recipe_code import recipe_code, wrap_text

    inferred = "\n".join(
        line
        for name, text in suggestion.facts.items()
        for line in wrap_text(f"{name}: {text}", " " * 4, " " * 8)
    )
    # the file's first line begins with three quotation marks
    title = "\n".join(wrap_text(suggestion.title, " " * 3, ""))
    docstring = (
        f"{title}\n\n    weft train {shlex.quote(str(path))}\n    {suggestion.use}\n\n"
        f"Written by `weft new` with these inferred settings:\n\n{inferred}"
    )
    text = recipe_code(
        printable_lines(docstring).replace("\\", "/").replace('"""', "'''"),
        suggestion.fields,
        suggestion.comments,
        suggestion.constants,
    )
    path.write_text(text, "utf-8")
    try:
        load_recipe(str(path))
    except ValueError:
        path.unlink()
        raise


def model_facts(spec: "Spec") -> dict[str, str]:
    """Return the size of a model and the layouts that it can be exported to after training."""
    from ..interop.huggingface.equivalent_specs import find_family

    try:
        export = f"Hugging Face's layout, as {find_family(spec).family.name}"
    except ValueError:
        export = "only Weft's own layout; no other library opens the trained model"
    else:
        export += f"; {note}" if (note := head_note(spec)) else ""
    return {"model": f"{spec.parameter_count():,} parameters", "export": export}


def cost_fact(flops: float, steps: int, precision: str) -> dict[str, str]:
    """Return the estimated cost of a run on this machine."""
    from ..training.machine import speed

    seconds = flops / (UTILISATION * speed(precision))
    duration = f"about {format_duration(seconds)}" if seconds >= 1 else "under a second"
    cost = f"{count_of(steps, 'step')}, {format_number(flops, 'FLOP')}: {duration} on this machine"
    return {"cost": cost}


def page(path: Path, suggestion: "Suggestion", facts: dict[str, str]) -> Any:
    from rich.console import Group
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    for name, text in facts.items():
        table.add_row(name, text)
    return Group(
        f"wrote {path}; edit any inferred setting:",
        "",
        table,
        "",
        f"weft train {shlex.quote(str(path))}",
        suggestion.use,
    )
