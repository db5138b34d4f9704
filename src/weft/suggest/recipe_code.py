"""Recipe values as Python source, formatted as by ruff, with each call with arguments broken into
lines.
"""

from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass, replace
from textwrap import TextWrapper
from typing import Any, NamedTuple

from .. import recipe as R
from ..families import family

WIDTH = 100  # maximum line length, as in this project
INDENT = "    "
USER_CODE = "weft.support.user_code."  # module prefix of user code


class Call(NamedTuple):
    """A call that is not a recipe value, such as `weft.bert("tiny", vocab_size=8192)`."""

    function: str
    arguments: dict[str, Any]
    first: Any = None  # the positional argument


class Name(NamedTuple):
    """A variable, or any other expression."""

    text: str


def evaluate(value: Any, constants: dict[str, Any]) -> Any:
    """Return the value of an expression; `constants` are its variables."""
    if isinstance(value, Name):
        variable, *attributes = value.text.split(".")
        part = evaluate(constants[variable], constants)
        for attribute in attributes:
            part = getattr(part, attribute)
        return part
    if not isinstance(value, Call):
        return value
    first = [] if value.first is None else [evaluate(value.first, constants)]
    arguments = {name: evaluate(part, constants) for name, part in value.arguments.items()}
    return function_named(value.function)(*first, **arguments)


def function_named(name: str) -> Callable[..., Any]:
    """Return a family, a recipe class, or `dataclasses.replace` by name."""
    if name == "replace":
        return replace
    function: Callable[..., Any] = (
        family(name.removeprefix("weft.")) if name.startswith("weft.") else getattr(R, name)
    )
    return function


def code(value: Any, column: int = 0, indent: str = "") -> str:
    """Return the source of a value that starts at `column` of a line with indentation `indent`."""
    if isinstance(value, Name):
        return value.text
    if isinstance(value, Call):
        first = [] if value.first is None else [code(value.first)]
        return call_code(value.function, value.arguments, indent, first)
    if is_dataclass(value) and not isinstance(value, type):
        return call_code(class_code(type(value)), chosen_fields(value), indent)
    if isinstance(value, tuple):
        return tuple_code(value, column, indent)
    return text_code(value) if isinstance(value, str) else repr(value)


def class_code(kind: type) -> str:
    """Return the name of a class in the source: bare for classes of `weft.recipe` and of user
    files, `weft.Name` for others.
    """
    is_imported = kind.__name__ in R.__all__ or kind.__module__.startswith(USER_CODE)
    return kind.__name__ if is_imported else f"weft.{kind.__name__}"


def chosen_fields(value: Any) -> dict[str, Any]:
    """Return the fields that differ from their defaults."""
    parts = {field.name: (field.default, getattr(value, field.name)) for field in fields(value)}
    return {
        name: part
        for name, (default, part) in parts.items()
        if default is MISSING or part != default
    }


def call_code(
    name: str, arguments: dict[str, Any], indent: str, first: list[str] | None = None
) -> str:
    inner = indent + INDENT
    parts = [*(first or []), *(argument_code(k, v, inner) for k, v in arguments.items())]
    if not parts:
        return f"{name}()"
    return f"{name}(\n" + "".join(f"{inner}{part},\n" for part in parts) + f"{indent})"


def argument_code(name: str, value: Any, indent: str) -> str:
    return f"{name}={code(value, len(indent) + len(name) + 1, indent)}"


def tuple_code(items: tuple[Any, ...], column: int, indent: str) -> str:
    inner = indent + INDENT
    parts = [code(item, len(inner), inner) for item in items]
    if len(items) > 1 and "\n" in parts[0] and all(item == items[0] for item in items):
        return f"(\n{inner}{parts[0]},\n{indent})\n{indent}* {len(items)}"
    line = f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"
    if "\n" not in line and column + len(line) + 1 <= WIDTH:
        return line
    return "(\n" + "".join(f"{inner}{part},\n" for part in parts) + f"{indent})"


def text_code(text: str) -> str:
    """Return a string literal as ruff writes it: with double quotes, unless single quotes need
    fewer backslashes.
    """
    plain = repr(text)
    if plain.startswith('"') or '"' in text:
        return plain
    return f'"{plain[1:-1]}"'


def value_names(value: Any) -> set[tuple[str, str]]:
    """Return the modules and names that the source of a value imports."""
    if isinstance(value, Name):
        return set()
    if isinstance(value, Call):
        own = {("weft.recipe", value.function)} if value.function in R.__all__ else set()
        return own.union(*map(value_names, (value.first, *value.arguments.values())))
    if isinstance(value, tuple):
        return set().union(*map(value_names, value))
    if not is_dataclass(value):
        return set()
    inside = set().union(*map(value_names, chosen_fields(value).values()))
    kind = type(value)
    if kind.__module__.startswith(USER_CODE):
        return inside | {(kind.__module__, kind.__name__)}
    return inside | ({("weft.recipe", kind.__name__)} if kind.__name__ in R.__all__ else set())


def name_shared_source(
    constants: dict[str, Any], values: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Write the source once if training and validation are parts of the same files."""
    data = values["data"]
    if replace(data.train, fraction=data.valid.fraction) != data.valid:
        return constants, values
    held_out = Call("replace", {"fraction": data.valid.fraction}, Name("TRAIN"))
    shared = {"train": Name("TRAIN"), "valid": held_out}
    call = Call("Data", chosen_fields(data) | shared)
    return constants | {"TRAIN": data.train}, values | {"data": call}


def uses_replace(value: Any) -> bool:
    """Return whether the source of a value calls `dataclasses.replace`."""
    if not isinstance(value, Call):
        return False
    return value.function == "replace" or any(map(uses_replace, value.arguments.values()))


def import_code(names: set[tuple[str, str]]) -> str:
    """Return the import statements for names, sorted as by ruff."""
    text = "import weft\n"
    for module in sorted({module for module, _ in names}):
        inside = [name for of_module, name in names if of_module == module]
        inside.sort(key=lambda name: (not name.isupper(), name))
        text += f"from {module} import (\n" + "".join(f"{INDENT}{n},\n" for n in inside) + ")\n"
    return text + "\n"


def wrap_text(text: str, first: str, later: str | None = None) -> list[str]:
    """Break the lines of a text at the width; `first` and `later` are before them."""
    wrapper = TextWrapper(
        WIDTH,
        initial_indent=first,
        subsequent_indent=first if later is None else later,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [piece for line in text.splitlines() for piece in wrapper.wrap(line)]


def recipe_code(
    docstring: str,
    values: dict[str, Any],
    comments: dict[str, str],
    constants: dict[str, Any],
) -> str:
    """Return the text of a recipe file.

    Args:
        docstring: the docstring of the file.
        values: the fields of the recipe.
        comments: comments above fields, by field.
        constants: variables above the recipe.
    """
    constants, values = name_shared_source(constants, values)
    head = f'"""{docstring.strip()}\n"""\n\n'
    if any(uses_replace(value) for value in (*constants.values(), *values.values())):
        head += "from dataclasses import replace\n\n"
    names = {("weft.recipe", "Recipe")}.union(
        *map(value_names, (*values.values(), *constants.values()))
    )
    head += import_code(names)
    body = "".join(f"{name} = {code(part, len(name) + 3)}\n" for name, part in constants.items())
    lines = []
    for name, part in values.items():
        if name in comments:
            lines += [f"{line}\n" for line in wrap_text(comments[name], f"{INDENT}# ")]
        lines.append(f"{INDENT}{argument_code(name, part, INDENT)},\n")
    body += "\n" if body else ""
    return f"{head}{body}recipe = Recipe(\n{''.join(lines)})\n"
