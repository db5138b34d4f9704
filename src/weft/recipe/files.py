"""Loading of recipes from Python files, run directories and JSON."""

import json
from importlib.util import module_from_spec
from pathlib import Path
from traceback import extract_tb

from ..support.python_files import module_spec_of_file
from ..support.storage import DamagedFile, unseal_json
from ..support.synonyms import suggest
from ..support.values import from_plain
from .recipe import Recipe


def load_recipe(name: str) -> Recipe:
    """Return the recipe in a file or run directory.

    Args:
        name: "file.py" (its first recipe), "file.py:variable", a JSON file or a run directory.

    Raises:
        ValueError: if the file does not exist, fails to run or has no such recipe.
    """
    file, _, variable = name.partition(":")
    path = Path(file) / "recipe.json" if Path(file).is_dir() else Path(file)
    if not path.exists():
        raise ValueError(
            f"{file!r} does not exist; give a Python file, a JSON file or a run directory"
        )
    if path.suffix == ".json":
        recipes = {"recipe": recipe_from_json(path)}
    else:
        importable = module_spec_of_file(path.stem, path)
        if importable is None:
            raise ValueError(
                f"{file} is not a recipe; give a file whose name ends with .py or .json"
            )
        module_spec, loader = importable
        module = module_from_spec(module_spec)
        try:
            loader.exec_module(module)
        except Exception as error:  # a recipe is the user's program and may raise anything
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
    """Return the recipe of a run directory."""
    path = folder / "recipe.json"
    if not folder.is_dir():
        problem = "is not a directory" if folder.exists() else "does not exist"
        raise ValueError(f"{folder} {problem}; give a run directory, such as runs/NAME")
    if not path.exists():
        raise ValueError(
            f"{folder} is not a run directory: it has no recipe.json; start a run with weft train "
            "RECIPE"
        )
    return recipe_from_json(path)


def recipe_from_json(path: Path, sealed: bool = True) -> Recipe:
    """Return the recipe of a JSON file.

    Args:
        path: the file.
        sealed: whether a file that contains its own SHA-256, as that of a run does, must match it
            (default: True).
    """
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
            f"{path} was modified after Weft wrote it: {error}; if you edited it, delete its last "
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
