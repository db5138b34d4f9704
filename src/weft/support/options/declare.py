"""Option declarations: a dataclass field with its type, its default, and an `Option` with help and
bounds.

    @dataclass(frozen=True, kw_only=True)
    class SampleOptions(Options):
        num_beams: Annotated[int, Option("number of beams", metavar="N", least=1)] = 4

Values are checked at construction, so that the command line and Python accept the same values.
"""

from collections.abc import Sequence
from dataclasses import MISSING, Field, dataclass, fields
from functools import reduce
from inspect import get_annotations
from math import inf, isfinite
from operator import or_
from os import PathLike
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin


@dataclass(frozen=True)
class Option:
    """The help and the allowed values of an option.

    Attributes:
        help: what the option does and its unit, without the default.
        default: text for a default that the value does not show, such as "from the data".
        metavar: name of the value in the command's help.
        short: short name, such as "-o".
        flag: name on the command line if it differs from Python's, such as "from".
        example: a valid value for error messages.
        least: minimum of a number.
        above: exclusive lower bound of a number.
        most: maximum of a number.
        positional: whether the command takes the value without the option's name.
        repeat: whether each use of the option takes one value, instead of several after one use.
        only: "command" or "python" for an option of one side only.
    """

    help: str
    default: str = ""
    metavar: str | None = None
    short: str | None = None
    flag: str = ""
    example: str = ""
    least: float = -inf
    above: float = -inf
    most: float = inf
    positional: bool = False
    repeat: bool = False
    only: Literal["both", "command", "python"] = "both"


class OptionField(NamedTuple):
    """A field of an options class, with its analysed type."""

    name: str
    option: Option
    # The type of one value
    type: Any
    choices: tuple[str, ...]
    many: bool
    optional: bool
    # MISSING if the option is required
    default: Any

    def wanted(self) -> str:
        """Return a description of valid values: "a number above 0, such as 5e-5"."""
        option = self.option
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        words = {int: "an integer", float: "a number", bool: "True or False"}.get(self.type, "text")
        if option.least > -inf and option.most < inf:
            words += f" from {option.least:g} to {option.most:g}"
        elif option.least > -inf:
            words += f" of at least {option.least:g}"
        elif option.above > -inf:
            words += f" above {option.above:g}"
            words += f", at most {option.most:g}" if option.most < inf else ""
        return words + (f", such as {option.example}" if option.example else "")

    def allows(self, value: Any) -> bool:
        """Return whether a single value has a valid type and size."""
        if self.choices:
            return value in self.choices
        if self.type is bool:
            return isinstance(value, bool)
        if self.type in (int, float):
            right = isinstance(value, self.type | int) and not isinstance(value, bool)
            return right and isfinite(value) and self.is_in_bounds(value)
        return self.type is not str or isinstance(value, str)

    def is_in_bounds(self, number: float) -> bool:
        option = self.option
        return option.least <= number <= option.most and number > option.above

    def checked(self, value: Any) -> Any:
        """Return a value as stored: a path as text, several values as a tuple.

        Raises:
            ValueError: if the type or size is invalid.
        """
        if (value is None and self.optional) or value is self.default:
            return value
        if self.many:
            values = (value,) if isinstance(value, str | PathLike) else value
            if not isinstance(values, Sequence):
                raise ValueError(f"{self.name} = {excerpt(value)}: give a list")
            if not values and self.default is MISSING:
                raise ValueError(f"{self.name} is empty: give one value or more")
            return tuple(map(self.checked_one, values))
        return self.checked_one(value)

    def checked_one(self, value: Any) -> Any:
        if self.type is str and isinstance(value, PathLike):
            value = str(value)
        if not self.allows(value):
            raise ValueError(f"{self.name} = {excerpt(value)}: give {self.wanted()}")
        return value


def excerpt(value: Any) -> str:
    """Return the start of a value's repr."""
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}…"


# The fields of each class, analysed once
FIELDS: dict[type, dict[str, OptionField]] = {}


@dataclass(frozen=True, kw_only=True)
class Options:
    """Base of the options of a command. Several values are stored as a tuple; a single text counts
    as a list of one."""

    def __post_init__(self) -> None:
        for field in option_fields(type(self)).values():
            object.__setattr__(self, field.name, field.checked(getattr(self, field.name)))


def option_fields(cls: type[Options]) -> dict[str, OptionField]:
    """Return the options of a class by name: its own first, then those of its bases in order."""
    if cls not in FIELDS:
        place = {name: i for i, base in enumerate(cls.__mro__) for name in get_annotations(base)}
        ordered = sorted(fields(cls), key=lambda field: place[field.name])
        FIELDS[cls] = {field.name: option_field(field) for field in ordered}
    return FIELDS[cls]


def option_field(field: "Field[Any]") -> OptionField:
    """Analyse the type of a field: `Annotated[T, Option]`, where T may be a list, a literal or
    optional."""
    plain, option = unannotated(field.type)
    if option is None:
        raise TypeError(f"{field.name} has no Option; annotate it as Annotated[type, Option(…)]")
    optional = False
    if get_origin(plain) in (Union, UnionType):
        parts = [part for part in get_args(plain) if part is not type(None)]
        optional = len(parts) < len(get_args(plain))
        plain = parts[0] if len(parts) == 1 else object
    is_sequence = get_origin(plain) is Sequence
    if is_sequence:
        plain = get_args(plain)[0]
    choices = get_args(plain) if get_origin(plain) is Literal else ()
    kind = str if choices else plain
    return OptionField(field.name, option, kind, choices, is_sequence, optional, default_of(field))


def default_of(field: "Field[Any]") -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


def unannotated(annotation: Any) -> tuple[Any, Option | None]:
    """Return a type without its `Option`, also inside `… | None`, and the option."""
    if get_origin(annotation) is Annotated:
        plain, *notes = get_args(annotation)
        options = [note for note in notes if isinstance(note, Option)]
        return plain, options[-1] if options else None
    if get_origin(annotation) is Union:
        parts = [unannotated(part) for part in get_args(annotation)]
        option = next((option for _, option in parts if option is not None), None)
        return reduce(or_, (part for part, _ in parts)), option
    return annotation, None
