"""Printed values: an indented tree of the fields that differ from the defaults."""

from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

T = TypeVar("T")
LINE_WIDTH = 88  # maximum width of a line


def fold_repeats(items: Sequence[T], longest: int = 6) -> list[tuple[int, Sequence[T]]]:
    """Fold repeated patterns as (times, pattern), so that a depth of 96 prints like a depth of
    one."""
    repeats = []
    i = 0
    while i < len(items):
        times = 1
        period = 1
        for p in range(1, longest + 1):
            n = 1
            while items[i : i + p] == items[i + n * p : i + (n + 1) * p]:
                n += 1
            if n > 1 and n * p > times * period:
                times = n
                period = p
        repeats.append((times, items[i : i + period]))
        i += times * period
    return repeats


def non_default_fields(thing: Any) -> dict[str, Any]:
    """Return the fields of a value that differ from their defaults."""
    return {f.name: value for f in fields(thing) if (value := getattr(thing, f.name)) != f.default}


def format_inline(thing: Any) -> str:
    """Format a value on one line."""
    if is_dataclass(thing):
        arguments = (f"{k}={format_inline(v)}" for k, v in non_default_fields(thing).items())
        return f"{type(thing).__name__}({', '.join(arguments)})"
    if isinstance(thing, tuple):
        items = ", ".join(map(format_inline, thing))
        return f"({items},)" if len(thing) == 1 else f"({items})"
    return f"{thing:.6g}" if isinstance(thing, float) else repr(thing)


def format_tree(thing: Any, label: str = "", indent: str = "") -> Iterator[str]:
    """Yield the lines of a value: one line if it fits and has no items, else one per field,
    indented, with repeated items counted.
    """
    line = f"{indent}{label}{format_inline(thing)}"
    if not (is_tuple_of_values(thing) or is_dataclass(thing)) or (
        len(line) <= LINE_WIDTH and not contains_values(thing)
    ):
        yield line
    elif is_dataclass(thing):
        yield f"{indent}{label}{type(thing).__name__}"
        for name, part in non_default_fields(thing).items():
            yield from format_tree(part, f"{name}: ", indent + "  ")
    else:
        yield f"{indent}{label}".rstrip()
        at = 0
        for times, pattern in fold_repeats(thing):
            inner = indent + "  "
            if len(pattern) > 1 and times > 1:
                yield f"{inner}{times} × {len(pattern)} in this order"
                inner += "  "
            repeat_text = f"{times} × " if times > 1 and len(pattern) == 1 else ""
            for i, item in enumerate(pattern):
                yield from format_tree(
                    item, repeat_text or (f"{at + i}: " if isinstance(item, tuple) else ""), inner
                )
            at += times * len(pattern)


def contains_values(thing: Any) -> bool:
    return is_tuple_of_values(thing) or (
        is_dataclass(thing) and any(contains_values(getattr(thing, f.name)) for f in fields(thing))
    )


def is_tuple_of_values(thing: Any) -> bool:
    return isinstance(thing, tuple) and any(
        is_dataclass(item) or is_tuple_of_values(item) for item in thing
    )
