"""The registry of choices by name: open sum types that user code can extend. No torch.

A *value* is a frozen, validated dataclass that subclasses an open base such as `Norm`; its class
name is its `kind` in JSON and on the command line. Its implementation is registered with
`implements`, as a class or as "module:name", so that torch is imported only when something is
built. A *named* thing is not a value: a data format, a metric, an attention backend, a family.
"""

from collections.abc import Callable
from dataclasses import MISSING, fields
from importlib import import_module
from inspect import Parameter, Signature
from types import UnionType
from typing import (
    Any,
    Literal,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

from pydantic import ConfigDict, ValidationError
from pydantic.dataclasses import dataclass

from .synonyms import suggest
from .value_tree import format_tree

T = TypeVar("T")
F = TypeVar("F")
# An open base such as Norm is a plain class, checked by isinstance, which
# `arbitrary_types_allowed` permits.
CHECKED = ConfigDict(extra="forbid", strict=True, arbitrary_types_allowed=True)
CHOICES: dict[str, type] = {}
IMPLEMENTATIONS: dict[type, Any] = {}
NAMED: dict[type, dict[str, Any]] = {}


class Named:
    """Base of things registered by `name` that are not part of a spec or a recipe: formats,
    metrics, families.
    """

    name: str

    @property
    def origin(self) -> tuple[str, str]:
        """The place of the definition, which may register its name again, as a notebook cell
        does."""
        return place_of(type(self))


# Values


@dataclass_transform(frozen_default=True, kw_only_default=True)
def choice(cls: type[T]) -> type[T]:
    """Make a frozen value class with validated fields, and register it under its name.

    Raises:
        ValueError: if another class is registered under this name.
    """
    value: Any = dataclass(frozen=True, kw_only=True, config=CHECKED)(cls)
    before = CHOICES.get(value.__name__)
    if before is not None and place_of(before) != place_of(value):
        raise ValueError(
            f"a choice named {value.__name__!r} is already registered by {before.__module__}; use "
            "another name"
        )
    validate: Callable[..., None] = value.__init__

    def __init__(self: Any, *unnamed: Any, **values: Any) -> None:
        if unnamed:
            first = fields(value)[0].name
            raise ValueError(
                f"{value.__name__} takes its fields by name: {value.__name__}({first}=…)"
            )
        try:
            validate(self, **{name: _as_tuple(part) for name, part in values.items()})
        except ValidationError as error:
            by_field: dict[str, list[Any]] = {}
            for problem in error.errors():
                by_field.setdefault(str(problem["loc"][:1]), []).append(problem)
            lines = (explain_validation_error(value, problems) for problems in by_field.values())
            raise ValueError("; ".join(lines)) from None

    value.__init__ = __init__
    value.__str__ = _tree
    value.__signature__ = ReadableSignature()
    CHOICES[value.__name__] = value
    registered: type[T] = value
    return registered


def place_of(thing: Any) -> tuple[str, str]:
    """Return the module and the name of a class or a function."""
    return thing.__module__, thing.__qualname__


def _as_tuple(part: Any) -> Any:
    """Convert lists to tuples at any depth."""
    return tuple(map(_as_tuple, part)) if isinstance(part, list) else part


def _tree(value: Any) -> str:
    return "\n".join(format_tree(value))


class TypeInWords(str):
    """An annotation that help() prints without quotes."""

    def __repr__(self) -> str:
        return str(self)


class ReadableSignature:
    """The signature of a value class with readable types, computed on first access."""

    def __get__(self, instance: object, owner: type) -> Signature:
        if instance is not None:
            raise AttributeError("a value has no signature; its class has")
        try:
            types = get_type_hints(owner)
        except NameError:
            # Quoted annotations of local names
            types = {}
        return Signature(
            [
                Parameter(
                    f.name,
                    Parameter.KEYWORD_ONLY,
                    default=Parameter.empty if f.default is MISSING else f.default,
                    annotation=TypeInWords(type_in_words(types.get(f.name, f.type))),
                )
                for f in fields(owner)
            ]
        )


def type_in_words(annotation: Any) -> str:
    """Return an annotation as written in the source, such as `int | None`."""
    origin = get_origin(annotation)
    parts = get_args(annotation)
    if origin in (Union, UnionType):
        return " | ".join(map(type_in_words, parts))
    if origin is Literal:
        return " | ".join(map(repr, parts))
    if parts and isinstance(origin, type):
        inside = ("..." if part is ... else type_in_words(part) for part in parts)
        return f"{origin.__name__}[{', '.join(inside)}]"
    if annotation is type(None):
        return "None"
    if isinstance(annotation, list):
        return f"[{', '.join(map(type_in_words, annotation))}]"
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


def explain_validation_error(cls: type, problems: list[Any]) -> str:
    """Describe an invalid field in one line; a union reports one problem per member."""
    problem = problems[0]
    kinds = [kind for p in problems for kind in _expected_kinds(p)]
    name = str(problem["loc"][0]) if problem["loc"] else ""
    field_names = [f.name for f in fields(cls)]
    if problem["type"] == "unexpected_keyword_argument":
        return f"{cls.__name__} has no field {name!r}; {suggest(name, field_names)}"
    if problem["type"] == "missing":
        return f"{cls.__name__} needs {name!r}"
    if problem["type"] == "value_error":
        return str(problem["ctx"]["error"])
    shown_input = repr(problem["input"])
    shown_input = shown_input if len(shown_input) <= 60 else f"{shown_input[:57]}…"
    if kinds:
        return (
            f"{cls.__name__}.{name} = {shown_input}: give one of {', '.join(dict.fromkeys(kinds))}"
        )
    if problem["type"] == "tuple_type":
        return (
            f"{cls.__name__}.{name} = {shown_input}: give a tuple; on the command line, a "
            "quoted list: '[…, …]'"
        )
    messages = dict.fromkeys(
        f"{p['msg'][:1].lower()}{p['msg'][1:]}" for p in problems if p["input"] is problem["input"]
    )
    return (
        f"{cls.__name__}.{name} = {shown_input}: "
        f"{' or '.join(messages).replace(' or input should', ' or')}"
    )


def _expected_kinds(problem: Any) -> list[str]:
    if problem["type"] == "is_instance_of":
        base = problem["ctx"]["class"]
        return [
            kind for kind, cls in CHOICES.items() if base in (c.__name__ for c in cls.__mro__)
        ] or [base]
    return [problem["ctx"]["class_name"]] if problem["type"].startswith("dataclass") else []


def members(base: type[T]) -> list[type[T]]:
    """Return every registered value class of an open base, in order of registration."""
    return [cls for cls in CHOICES.values() if issubclass(cls, base)]


def implements(value: type, target: str | None = None) -> Callable[[F], F]:
    """Register the implementation of a value: decorate a class or a function, or give "module:name"
    as `target`.

    Args:
        value: the value class.
        target: "module:name", imported on first use (default: the decorated object).
    """

    def decorator(builder: F) -> F:
        IMPLEMENTATIONS[value] = builder
        return builder

    if target is not None:
        IMPLEMENTATIONS[value] = target
    return decorator


def implementation(value: object) -> Any:
    """Return the implementation of `value` (a value or its class), importing it if it was
    registered by name.
    """
    cls = value if isinstance(value, type) else type(value)
    for base in cls.__mro__:
        if base in IMPLEMENTATIONS:
            IMPLEMENTATIONS[base] = resolved = resolve(IMPLEMENTATIONS[base])
            return resolved
    raise ValueError(
        f"{cls.__name__} has no implementation; decorate one with @weft.implements({cls.__name__})"
    )


def resolve(target: Any) -> Any:
    """Return `target`, or the object of "module:name", importing the module."""
    if not isinstance(target, str):
        return target
    module, _, name = target.partition(":")
    return getattr(import_module(module), name)


# Registry by name


def register_named(base: type, name: str, thing: Any) -> None:
    """Register `thing`, or "module:name", as the `base` called `name`."""
    table = NAMED.setdefault(base, {})
    before = table.get(name)
    if before is not None and _origin(before) != _origin(thing):
        raise ValueError(
            f"a {base.__name__} named {name!r} is already registered; use another name"
        )
    table[name] = thing


def _origin(thing: Any) -> tuple[str, str]:
    if isinstance(thing, str):
        return thing, ""
    return thing.origin if isinstance(thing, Named) else place_of(thing)


def names(base: type) -> list[str]:
    """Return the names of everything registered under `base`, in order of registration."""
    return list(NAMED.get(base, {}))


def named(base: type, name: str) -> Any:
    """Return the `base` registered as `name`, importing it if needed.

    Raises:
        ValueError: if the name is unknown; the message suggests the closest name.
    """
    table = NAMED.get(base, {})
    if name not in table:
        raise ValueError(f"unknown {base.__name__} {name!r}; {suggest(name, list(table))}")
    table[name] = thing = resolve(table[name])
    return thing


# Registration of user code


@overload
def register(thing: T) -> T: ...
@overload
def register(thing: type, name: str) -> Callable[[F], F]: ...
def register(thing: Any, name: str | None = None) -> Any:
    """Register user code.

    `@weft.register` on a class that subclasses an open base makes it a value
    (`class ScaleNorm(weft.Norm)`) or, if the base is registered by name, adds one instance under
    its `name` (`class Fasta(weft.Format)`). `@weft.register(weft.Metric, "recall_at_1")` adds a
    function under a name, and `weft.register(weft.Family("opt", …))` an instance under its own
    name.

    Args:
        thing: a class, an instance, or with `name` an open base.
        name: the name of the decorated function (default: the name of `thing`).

    Returns:
        The registered class or instance, or a decorator if `name` is given.
    """
    if name is not None:

        def decorator(builder: F) -> F:
            register_named(thing, name, builder)
            return builder

        return decorator
    cls = thing if isinstance(thing, type) else type(thing)
    if not issubclass(cls, Named):
        return choice(thing)
    base = next(c for c in reversed(cls.__mro__) if issubclass(c, Named) and c is not Named)
    instance = thing() if thing is cls else thing
    register_named(base, instance.name, instance)
    return thing
