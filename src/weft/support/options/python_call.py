"""The Python call of a value of options: it takes the fields as its arguments."""

from collections.abc import Callable
from dataclasses import MISSING, fields
from functools import wraps
from inspect import Parameter, Signature, cleandoc
from typing import Any, ParamSpec, TypeVar

from ..python_messages import in_python
from ..registry import TypeInWords, type_in_words
from ..synonyms import suggest
from .declare import OptionField, Options, option_fields, unannotated

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T", bound=Options)


def python_call(options: Callable[P, T]) -> Callable[[Callable[[T], R]], Callable[P, R]]:
    """Decorate a function of one value of options: its arguments are then the fields of the value.

    Editors and type checkers see them through the parameter specification, help() through the
    signature and the docstring.

    Args:
        options: the class of the value.
    """

    def decorate(function: Callable[[T], R]) -> Callable[P, R]:
        signature = signature_of(options)  # type: ignore[arg-type]

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            for name in kwargs.keys() - signature.parameters.keys():
                option_names = list(signature.parameters)
                raise ValueError(
                    f"{function.__name__} has no option {name!r}; {suggest(name, option_names)}"
                )
            try:
                signature.bind(*args, **kwargs)
            except TypeError as error:
                raise TypeError(f"{function.__name__}: {error}") from None
            return function(options(*args, **kwargs))

        returned = function.__annotations__.get("return", Signature.empty)
        annotated = signature.replace(return_annotation=returned)
        call.__signature__ = annotated  # type: ignore[attr-defined]
        call.__doc__ = documented(function.__doc__ or "", options)  # type: ignore[arg-type]
        return call

    return decorate


def python_fields(cls: type[Options]) -> list[OptionField]:
    """Return the options that Python takes, in the order of the call."""
    options = option_fields(cls)
    positional = [field.name for field in fields(cls) if not field.kw_only]
    names = dict.fromkeys([*positional, *options])
    return [options[name] for name in names if options[name].option.only != "command"]


def signature_of(cls: type[Options]) -> Signature:
    return Signature([parameter(cls, field) for field in python_fields(cls)])


def parameter(cls: type[Options], field: OptionField) -> Parameter:
    declared = cls.__dataclass_fields__[field.name]
    kind = Parameter.KEYWORD_ONLY if declared.kw_only else Parameter.POSITIONAL_OR_KEYWORD
    words = in_words(declared.type)
    if field.many and field.type is str:
        words = f"str | {words}"
    default = Parameter.empty if field.default is MISSING else field.default
    return Parameter(field.name, kind, default=default, annotation=TypeInWords(words))


def in_words(annotation: Any) -> str:
    """Return a type as it is written, without its option."""
    plain, _ = unannotated(annotation)
    return getattr(plain, "__forward_arg__", None) or type_in_words(plain)


def documented(doc: str, cls: type[Options]) -> str:
    """Return a docstring with a section of the arguments, before what is returned and raised."""
    first, *rest = cleandoc(doc).split("\n\n")
    end = next((i for i, part in enumerate(rest) if part.startswith(("Returns:", "Raises:"))), 0)
    arguments = "\n".join(["Args:", *(f"    {line(field)}" for field in python_fields(cls))])
    return "\n\n".join([first, *rest[:end], arguments, *rest[end:]])


def line(field: OptionField) -> str:
    default = f" (default: {in_python(field.option.default)})" if field.option.default else ""
    return f"{field.name}: {in_python(field.option.help)}{default}."
