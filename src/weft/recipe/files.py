"""Recipes from Python files, runs and JSON."""

import json
from importlib.util import module_from_spec
from pathlib import Path
from traceback import extract_tb

from ..support.python_files import module_spec_of_file
from ..support.storage import DamagedFile, unseal_json
from ..support.synonyms import suggest
from ..support.values import from_plain
from .recipe import Recipe

# Recipes in files


def load_recipe(name: str) -> Recipe:
    """Return the recipe of `file.py` (its first), `file.py:name`, a JSON file, or the folder of a
    run."""
    file, _, variable = name.partition(":")
    path = Path(file) / "recipe.json" if Path(file).is_dir() else Path(file)
    if not path.exists():
        raise ValueError(
            f"no recipe {file!r}: give a Python file, a JSON file or the folder of a run"
        )
    if path.suffix == ".json":
        recipes = {"recipe": recipe_from_json(path)}
    else:
        importable = module_spec_of_file(path.stem, path)
        if importable is None:
            raise ValueError(f"{file} is not a recipe: its name must end in .py or .json")
        module_spec, loader = importable
        module = module_from_spec(module_spec)
        try:
            loader.exec_module(module)
        except Exception as error:  # a recipe is the user's own program
            inside = [
                frame.lineno
                for frame in extract_tb(error.__traceback__)
                if frame.filename == module_spec.origin
            ]
            if isinstance(error, SyntaxError):
                inside.append(error.lineno)
            line = inside[-1] if inside else "?"
            raise ValueError(f"{file}, line {line}: {type(error).__name__}: {error}") from error
        recipes = {key: thing for key, thing in vars(module).items() if isinstance(thing, Recipe)}
    if not all(isinstance(thing, Recipe) for thing in recipes.values()) or not recipes:
        raise ValueError(
            f"{file} defines no Recipe; assign one to a variable, such as tiny = Recipe(…)"
        )
    if variable and variable not in recipes:
        raise ValueError(f"{file} has no recipe {variable!r}; {suggest(variable, list(recipes))}")
    return recipes[variable or next(iter(recipes))]


def recipe_of_run(folder: Path) -> Recipe:
    path = folder / "recipe.json"
    if not folder.is_dir():
        problem = "is not a folder" if folder.exists() else "does not exist"
        raise ValueError(f"{folder} {problem}; give the folder of a run, such as runs/NAME")
    if not path.exists():
        raise ValueError(
            f"{folder} is not the folder of a run: it has no recipe.json; start one with weft "
            "train RECIPE"
        )
    return recipe_from_json(path)


def recipe_from_json(path: Path, sealed: bool = True) -> Recipe:
    """Return the recipe of a JSON file. If the file contains its own SHA-256, as that of a run
    does, it must match, unless `sealed` is False."""
    try:
        text = path.read_text("utf-8")
        plain = json.loads(text)
        if isinstance(plain, dict) and "seal" in plain:
            plain = (
                unseal_json(text)
                if sealed
                else {name: part for name, part in plain.items() if name != "seal"}
            )
        recipe_from_json = from_plain(plain)
    except DamagedFile as error:
        raise DamagedFile(
            f"{path} was changed after it was written: {error}; if you edited it, delete its last "
            'field, "seal"'
        ) from None
    except ValueError as error:
        raise ValueError(f"{path} is not a recipe: {error}") from None
    if not isinstance(recipe_from_json, Recipe):
        raise ValueError(
            f"{path} contains a {type(recipe_from_json).__name__}, not a Recipe; give the "
            "recipe.json of a run"
        )
    return recipe_from_json
