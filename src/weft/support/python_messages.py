"""Errors shared by commands and Python calls: converts commands and options in a message to Python
calls and arguments.
"""

import re
from collections.abc import Callable, Generator
from functools import wraps
from inspect import isgenerator, signature
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])
METHODS = "generate|fill|classify|tag|answer|embed|translate|detect"
FUNCTIONS = "tune|evaluate|train|look"
PLACEHOLDER = r" (?:\[?[A-Z]{2,}\]?|…\]?)(?![\w.])"
COMMANDS = (
    # In Python, parts of the user's own are imported
    (r" \(at the command line: --code FILE\)", ""),
    (r"weft train --output(?: [A-Z]+)?", r"weft.train with another directory"),
    (
        r"weft train ([\w./-]+\.py(?::\w+)?|RECIPE)",
        r'weft.train(recipe, weft.prepare(recipe.data)) where recipe = weft.load_recipe("\1")',
    ),
    (rf"weft ({METHODS}) (\S+) ([A-Z]{{2,}})", r'weft.open("\2").\1("\3")'),
    (rf"weft ({METHODS})\b", r"weft.open(…).\1(…)"),
    (rf"weft ({FUNCTIONS})\b(?! --)", r"weft.\1(…)"),
)
SETTING = r"--set ([\w.*]+)=([^\s;,)]+)"
WITH_OPTIONS = rf"weft ({FUNCTIONS}) (\S+)((?: --[a-z-]+ [^\s;,-][^\s;,]*)+)"
# A task is followed by its name; options of commands without a Python call are unchanged
OPTION = (
    rf"(?:torchrun|weft [a-z]+) --\S+|--([a-z][a-z-]*)((?:{PLACEHOLDER})+|(?<=--task) "
    r"(?!out\b)[\w|]+)?"
)


def in_python(message: str, names: dict[str, str] | None = None) -> str:
    """Return a message with its commands and options as Python calls and arguments.

    Args:
        message: a message such as `weft tune M --data FILE`, `--learning-rates` or `--set
            steps=20`.
        names: the Python arguments of options with another name (default: none).
    """

    def argument(match: re.Match[str], renamed: dict[str, str] = names or {}) -> str:
        if match[1] is None:
            return match[0]
        name = renamed.get(match[1], match[1]).replace("-", "_")
        words = ", ".join(f'"{word}"' for word in (match[2] or "").split())
        if not words:
            return name
        return f"{name}=({words})" if ", " in words else f"{name}={words}"

    def call(match: re.Match[str]) -> str:
        options = re.finditer(r"--([a-z-]+)( \S+)", match[3])
        arguments = (argument(option) for option in options)
        return f'weft.{match[1]}("{match[2]}", {", ".join(arguments)})'

    message = re.sub(WITH_OPTIONS, call, message)
    for command, python in COMMANDS:
        message = re.sub(command, python, message)
    if "set" in (names or {}):
        message = message.replace("--set ", "")
    message = re.sub(SETTING, r'weft.replace_path(recipe, "\1", \2)', message)
    return re.sub(OPTION, argument, message)


def python_errors(**names: str) -> Callable[[F], F]:
    """Decorate a public function that shares errors with a command; for a generator, this includes
    errors of its steps.

    Args:
        names: the Python arguments of options with another name, such as set="overrides".
    """

    def reworded(error: Exception) -> Exception:
        if len(error.args) == 1 and isinstance(error.args[0], str):
            error.args = (in_python(error.args[0], names),)
        return error

    def steps(generator: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        try:
            return (yield from generator)
        except (ValueError, RuntimeError) as error:
            reworded(error)
            raise

    def decorate(function: F) -> F:
        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                result = function(*args, **kwargs)
            except (ValueError, RuntimeError) as error:
                reworded(error)
                raise
            return steps(result) if isgenerator(result) else result

        return call  # type: ignore[return-value]

    return decorate


def python_reports(function: F) -> F:
    """Decorate a public function whose `report` argument receives lines that a command prints
    too."""
    default = signature(function).parameters["report"].default

    @wraps(function)
    def call(*args: Any, report: Callable[[str], None] = default, **kwargs: Any) -> Any:
        return function(*args, report=lambda line: report(in_python(line)), **kwargs)

    return call  # type: ignore[return-value]
