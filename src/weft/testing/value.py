"""Conformance of a value: frozen, comparable, and unchanged by a JSON round trip."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..support.registry import CHOICES
from ..support.values import from_json, get_path, iterate_leaves, replace_path, to_json


@contextmanager
def calling(what: str) -> Iterator[None]:
    """Convert an exception of the checked part into an AssertionError that names the call."""
    try:
        yield
    except AssertionError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise AssertionError(f"{what} raises {type(error).__name__}: {reason}") from error


def check_value(value: Any) -> None:
    """Check that a value is frozen, compares and hashes by content, and survives a JSON round trip.

    Args:
        value: an instance of a class decorated with `@weft.register`.
    """
    name = type(value).__name__
    assert CHOICES.get(name) is type(value), (
        f"{name} is not registered; decorate it: @weft.register"
    )
    again = from_json(to_json(value))
    assert again == value, f"{name} changes when written to JSON and read back: {again}"
    assert hash(again) == hash(value), f"{name}: equal values have different hashes"
    for field in vars(value):
        try:
            setattr(value, field, getattr(value, field))
        except AttributeError:
            continue
        raise AssertionError(f"{name}.{field} can be changed; values are frozen")
    for path, leaf in iterate_leaves(value):
        if path:
            changed = replace_path(value, path, leaf)
            assert get_path(changed, path) == leaf, f"{name}.{path} cannot be set by its path"
