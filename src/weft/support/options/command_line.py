"""The command line of an options class, with argparse."""

from argparse import Action, ArgumentParser, BooleanOptionalAction, Namespace
from collections.abc import Callable, Iterator
from dataclasses import MISSING
from typing import Any, NoReturn, TypeVar

from .declare import OptionField, Options, option_fields

T = TypeVar("T", bound=Options)


class WrongOption(Exception):
    """Raised for an invalid option value. It is not a ValueError, which argparse would replace by
    its own error."""


class Parser(ArgumentParser):
    """An argparse parser with one-line errors."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message}; see {self.prog} --help")

    def parse_known_args(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().parse_known_args(*args, **kwargs)
        except WrongOption as error:
            self.error(str(error))


def add_options(parser: ArgumentParser, cls: type[Options]) -> dict[str, Action]:
    """Add an argument per option, positional ones first, in the order of the fields."""
    return {field.name: add_option(parser, field) for field in command_fields(cls)}


def command_fields(cls: type[Options]) -> Iterator[OptionField]:
    fields = [field for field in option_fields(cls).values() if field.option.only != "python"]
    positional = {field.name: field for field in fields if field.option.positional}
    yield from (positional[name] for name in cls.__dataclass_fields__ if name in positional)
    yield from (field for field in fields if not field.option.positional)


def option_names(field: OptionField) -> tuple[str, ...]:
    """Return the names on the command line, such as -o and --output; none for positional
    options."""
    if field.option.positional:
        return ()
    short = (field.option.short,) if field.option.short else ()
    name = field.option.flag or field.name.replace("_", "-")
    return (*short, f"--{name}")


def help_text(field: OptionField) -> str:
    """Return the help text with the default."""
    words = field.option.help
    default = field.option.default or default_words(field.default)
    return f"{words} (default: {default})" if default else words


def default_words(default: Any) -> str:
    if default is MISSING or default is None or default is False or default == "":
        return ""
    if isinstance(default, tuple):
        return " ".join(map(default_words, default))
    return f"{default:g}" if isinstance(default, float) else str(default)


def add_option(parser: ArgumentParser, field: OptionField) -> Action:
    """Add the argument of one option."""
    names = option_names(field)
    required = field.default is MISSING
    settings: dict[str, Any] = {"help": help_text(field).replace("%", "%%")}
    if not required:
        settings["default"] = list(field.default) if field.many else field.default
    if field.type is bool:
        settings["action"] = BooleanOptionalAction if field.optional else "store_true"
        return parser.add_argument(*names, dest=field.name, **settings)
    settings["metavar"] = field.option.metavar
    settings["choices"] = field.choices or None
    if field.type is not str or field.choices:
        settings["type"] = converter(field)
    if field.option.repeat:
        settings["action"] = "append"
    elif field.many:
        settings["nargs"] = "+" if names or required else "*"
    if names:
        return parser.add_argument(*names, dest=field.name, required=required, **settings)
    if not required and not field.many:
        settings["nargs"] = "?"
    return parser.add_argument(field.name, **settings)


def converter(field: OptionField) -> Callable[[str], Any]:
    """Return a converter from a command-line word to a value; its error names the option."""

    def convert(text: str) -> Any:
        try:
            value = field.type(text)
        except ValueError:
            value = None
        if not field.allows(value):
            name = (option_names(field) or (field.option.metavar or field.name,))[-1]
            raise WrongOption(f"{name} {text}: give {field.wanted()}")
        return value

    return convert


def options_from(cls: type[T], arguments: Namespace) -> T:
    """Return the options from parsed arguments."""
    return cls(**{field.name: getattr(arguments, field.name) for field in command_fields(cls)})
