"""One page per recipe file: description, cost of each recipe, and source."""

import ast
from collections.abc import Iterator
from pathlib import Path

from weft.plan.cost import estimate_memory, run_flops
from weft.recipe import Recipe
from weft.recipe.recipe import sample_unit
from weft.support.console import format_number

from .markdown import first_paragraph, prose, table
from .usage import recipes_of


def cost_rows(recipes: dict[str, Recipe]) -> Iterator[tuple[str, ...]]:
    for name, recipe in recipes.items():
        per_row = 1 if sample_unit(recipe.model) == "images" else recipe.batch.length
        per_step = recipe.batch.rows_per_step() * per_row
        yield (
            f"`{name}`",
            f"`{type(recipe.task).__name__}`",
            f"{recipe.model.parameter_count():,}",
            f"{recipe.steps:,}",
            f"{per_step:,} {sample_unit(recipe.model)}",
            format_number(run_flops(recipe), "FLOP"),
            format_number(estimate_memory(recipe).total, "B"),
            f"`{type(recipe.optimiser).__name__}`, `{type(recipe.schedule).__name__}`",
        )


def recipe_page(path: Path) -> str:
    source = path.read_text()
    docstring = ast.get_docstring(ast.parse(source)) or ""
    recipes = recipes_of(path)
    header = (
        "recipe",
        "task",
        "parameters",
        "steps",
        "per step, at most",
        "run",
        "memory, at least",
        "optimiser",
    )
    lines = [f"# {path.name}", "", prose(first_paragraph(docstring)), ""]
    if recipes:
        lines += [*table(header, cost_rows(recipes)), ""]
        lines += [
            "```sh",
            f"weft show recipes/{path.name}",
            f"weft train recipes/{path.name}",
            "```",
            "",
        ]
    lines += ["```python", source.rstrip(), "```", ""]
    return "\n".join(lines)
