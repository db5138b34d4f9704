"""The families and recipes that use each choice, computed from their values."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

from weft.families import families
from weft.recipe import Recipe, load_recipe
from weft.spec import Branch, ParallelBlock

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Usage:
    """Usage of a choice: sorted names of families and recipe files."""

    families: tuple[str, ...] = ()
    recipes: tuple[str, ...] = ()

    def links(self, up: str = "") -> str:
        """Return links to both; `up` is the relative path to the root of the site."""
        of_families = [f"[{name}]({up}families/{name}.md)" for name in self.families]
        of_recipes = [f"[{name}.py]({up}recipe/{name}.md)" for name in self.recipes]
        return ", ".join((*of_families, *of_recipes))

    def summary(self) -> str:
        counts = ((len(self.families), "famil"), (len(self.recipes), "recipe"))
        endings = {"famil": ("y", "ies"), "recipe": ("", "s")}
        return " and ".join(f"{n} {word}{endings[word][n != 1]}" for n, word in counts if n)


def recipe_files() -> list[Path]:
    return sorted((ROOT / "recipes").rglob("*.py"))


@cache
def recipes_of(path: Path) -> dict[str, Recipe]:
    """Return the recipes of a file by variable name; empty for a file that only defines parts."""
    variables = re.findall(r"^(\w+) = ", path.read_text(), re.M)
    recipes = {}
    for name in variables:
        try:
            recipes[name] = load_recipe(f"{path}:{name}")
        except ValueError:
            continue
    return recipes


def placement(branch: Branch) -> str:
    """Return the name of the function that creates a branch with this norm placement."""
    if branch.residual_scale != 1 and branch.after:
        return "deepnorm_branch"
    if branch.before and branch.out:
        return "sandwich_norm"
    if branch.before:
        return "pre_norm"
    if branch.after:
        return "post_norm"
    return "out" if branch.out else ""


def marks(value: Any) -> Iterator[str]:
    """Yield the names of the choices, activations (`activation=gelu`) and norm placements in a
    value.
    """
    if is_dataclass(value):
        yield type(value).__name__
        if isinstance(value, Branch):
            yield placement(value)
        if isinstance(value, ParallelBlock):
            yield "parallel"
        for field in fields(value):
            part = getattr(value, field.name)
            if field.name == "activation" and isinstance(part, str):
                yield f"activation={part}"
            yield from marks(part)
    elif isinstance(value, tuple):
        for part in dict.fromkeys(value):  # a stack repeats its blocks
            yield from marks(part)


@cache
def usages() -> dict[str, Usage]:
    """Return the usage of each mark, over all family sizes and all recipes."""
    by_family: dict[str, dict[str, None]] = {}
    by_recipe: dict[str, dict[str, None]] = {}
    for family in families():
        for size in family.sizes:
            for mark in set(marks(family(size))):
                by_family.setdefault(mark, {})[family.name] = None
    for path in recipe_files():
        for recipe in recipes_of(path).values():
            for mark in set(marks(recipe)):
                by_recipe.setdefault(mark, {})[path.stem] = None
    return {
        mark: Usage(tuple(by_family.get(mark, ())), tuple(by_recipe.get(mark, ())))
        for mark in by_family.keys() | by_recipe.keys()
    }


def usage_of(mark: str) -> Usage:
    return usages().get(mark, Usage())
