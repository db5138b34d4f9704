"""Plain values: frozen, validated at construction, compared and hashed by content, to JSON and
back.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Annotated, Any

from pydantic import Field

from .registry import CHOICES
from .synonyms import closest_name, suggest
from .value_tree import format_inline, is_tuple_of_values

# JSON


def to_plain(thing: Any) -> Any:
    if is_dataclass(thing):
        return {"kind": type(thing).__name__} | {
            f.name: to_plain(getattr(thing, f.name)) for f in fields(thing)
        }
    return [to_plain(item) for item in thing] if isinstance(thing, tuple) else thing


def from_plain(plain: Any, path: str = "") -> Any:
    """Rebuild the value that `to_plain` wrote; an error names its path. Nothing is ever imported
    from JSON.
    """
    if isinstance(plain, list):
        return tuple(from_plain(item, f"{path}.{i}".lstrip(".")) for i, item in enumerate(plain))
    if not isinstance(plain, dict):
        return plain
    where = f"{path}: " if path else ""
    kind = plain.get("kind")
    if not isinstance(kind, str) or kind not in CHOICES:
        near = closest_name(str(kind), CHOICES)
        suggestion = f"did you mean {near!r}?" if near else "import the file that registers it"
        raise ValueError(
            f"{where}unknown choice {kind!r}; {suggestion} (at the command line: --code FILE)"
        )
    parts = {
        name: from_plain(part, f"{path}.{name}".lstrip("."))
        for name, part in plain.items()
        if name != "kind"
    }
    try:
        return CHOICES[kind](**parts)
    except ValueError as error:
        raise ValueError(f"{where}{error}") from None


def to_json(thing: Any) -> str:
    return json.dumps(to_plain(thing), indent=1)


def from_json(text: str) -> Any:
    return from_plain(json.loads(text))


SEAL = re.compile(r'"seal": "([0-9a-f]{64})"\n}$')
UNSEALED = "0" * 64


def iterate_leaves(thing: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every plain field of a value with its dotted path."""
    if is_dataclass(thing):
        for f in fields(thing):
            yield from iterate_leaves(getattr(thing, f.name), f"{path}.{f.name}".lstrip("."))
    elif isinstance(thing, tuple) and any(
        is_dataclass(item) or isinstance(item, tuple) for item in thing
    ):
        for i, item in enumerate(thing):
            yield from iterate_leaves(item, f"{path}.{i}")
    else:
        yield path, thing


def flatten_plain(plain: Any, path: str = "") -> dict[str, Any]:
    """Return what `to_plain` wrote, by dotted paths: every field, and the kind of every value."""
    if not isinstance(plain, dict | list):
        return {path: plain}
    parts = plain.items() if isinstance(plain, dict) else enumerate(plain)
    return {
        name: leaf
        for key, part in parts
        for name, leaf in flatten_plain(part, f"{path}.{key}".lstrip(".")).items()
    }


def differing_fields(*values: Any, path: str = "") -> dict[str, tuple[Any, ...]]:
    """Return where values differ: the outermost part that is of another kind, or a plain field; `*`
    stands for every item of a tuple, where all differ alike.
    """
    first = values[0]
    same_kind = all(type(value) is type(first) for value in values)
    if same_kind and is_dataclass(first):
        return {
            name: differing
            for f in fields(first)
            for name, differing in differing_fields(
                *(getattr(value, f.name) for value in values), path=f"{path}.{f.name}".lstrip(".")
            ).items()
        }
    if same_kind and is_tuple_of_values(first) and len({len(value) for value in values}) == 1:
        differences = [differing_fields(*items) for items in zip(*values, strict=True)]
        return {
            ".".join(filter(None, (path, "*" if alike else str(i), name))): differing
            for i, fields_of_item in enumerate(differences)
            for name, differing in fields_of_item.items()
            for alike in [all(other.get(name) == differing for other in differences)]
        }
    return {} if all(value == first for value in values) else {path: values}


class UnknownPath(ValueError):
    """A path that a value does not have."""


def get_path(thing: Any, path: str) -> Any:
    """Return the part of a value at a dotted path.

    Args:
        thing: a value, such as a spec or a recipe.
        path: names of fields and numbers of items, such as
            "encoder.blocks.0.attention.inner.heads"; `length` counts a tuple.

    Raises:
        UnknownPath: a ValueError that names the path which was probably meant.
    """
    part = thing
    for name in path.split(".") if path else ():
        try:
            if isinstance(part, tuple):
                part = len(part) if name == "length" else part[int(name)]
            else:
                part = getattr(part, name)
        except (AttributeError, IndexError, ValueError):
            raise UnknownPath(describe_unknown(thing, path)) from None
    return part


def replace_path(thing: Any, path: str, new: Any) -> Any:
    """Return a copy of a value with the part at a dotted path replaced.

    Args:
        thing: a value, such as a spec or a recipe.
        path: names of fields and numbers of items; `*` is every item of a tuple, as in
            "encoder.blocks.*.attention.dropout".
        new: what stands there in the copy, which is validated as a whole.

    Raises:
        UnknownPath: a ValueError that names the path which was probably meant.
        ValueError: if `new` does not fit there.
    """
    if not path:
        return new
    try:
        return _replaced(thing, path.split("."), new)
    except UnknownPath:
        raise UnknownPath(describe_unknown(thing, path)) from None


def _replaced(thing: Any, names: Sequence[str], new: Any) -> Any:
    if not names:
        return new
    name, *rest = names
    if isinstance(thing, tuple) and name == "*":
        return tuple(_replaced(item, rest, new) for item in thing)
    if isinstance(thing, tuple):
        if not name.isdecimal() or int(name) >= len(thing):
            raise UnknownPath
        return tuple(
            _replaced(item, rest, new) if i == int(name) else item for i, item in enumerate(thing)
        )
    values = {f.name: getattr(thing, f.name) for f in fields(thing)} if is_dataclass(thing) else {}
    if name not in values:
        raise UnknownPath
    return type(thing)(**values | {name: _replaced(values[name], rest, new)})


def describe_unknown(thing: Any, path: str) -> str:
    """Return where a path leaves a value, and the nearest path that it has."""
    part = thing
    before = ""
    for name in path.split("."):
        inside = dict(_parts(part))
        if name == "*" and "0" in inside:
            part = inside["0"]
        elif name in inside:
            part = inside[name]
        else:
            break
        before = f"{before}.{name}".lstrip(".")
    else:
        return f"{path}: give a number for *, to get one part"
    if isinstance(part, tuple):
        return (
            f"{before} has no item {name!r}; it has {len(part)} items, numbered from 0; * "
            "selects all of them"
        )
    where = f"{before} ({type(part).__name__})" if before else type(part).__name__
    near = nearest_path(thing, path)
    if near:
        hint = f"did you mean {near!r}?"
    else:
        hint = suggest(name, list(inside)) if inside else f"it is {format_inline(part)}"
    return f"{where} has no field {name!r}; {hint}"


def _parts(thing: Any) -> Iterator[tuple[str, Any]]:
    """Yield the fields of a value, or the items of a tuple, by name or number."""
    if is_dataclass(thing):
        yield from ((f.name, getattr(thing, f.name)) for f in fields(thing))
    elif isinstance(thing, tuple):
        yield from ((str(i), item) for i, item in enumerate(thing))


def nearest_path(thing: Any, path: str) -> str | None:
    """Return the shortest path of a value that has all names of `path` in their order, and perhaps
    others between: for "attention.rope" that is "encoder.blocks.*.attention.inner.rope".
    """
    places = list(dict.fromkeys(_places(thing)))
    path_names = path.split(".")
    last = closest_name(path_names[-1], {place[-1] for place in places})
    for names in (path_names, [*path_names[:-1], last or path_names[-1]]):
        near = [found for place in places if (found := _insert_names(place, names))]
        if near:
            return min(near, key=lambda path: (path.count("."), near.index(path)))
    return None


def _places(thing: Any) -> Iterator[tuple[str, ...]]:
    """Yield the path of every part of a value, with `*` for the number of an item; equal items are
    visited once.
    """
    parts = (
        [("*", item) for item in dict.fromkeys(thing)]
        if isinstance(thing, tuple)
        else _parts(thing)
    )
    for name, part in parts:
        yield (name,)
        yield from ((name, *rest) for rest in _places(part))


def _insert_names(place: tuple[str, ...], wanted: Sequence[str]) -> str | None:
    """Return the place with the numbers that were wanted, if it ends with the last wanted name and
    has all others in order.
    """
    left = list(wanted)
    names = []
    for name in place:
        matches = left and (left[0] == name or (name == "*" and left[0].isdecimal()))
        names.append(left.pop(0) if matches else name)
    return None if left or place[-1] not in (wanted[-1], "*") else ".".join(names)


# beyond that nothing is counted, and products would leave float64's range
PositiveInt = Annotated[int, Field(gt=0, lt=1 << 48)]
NonNegativeInt = Annotated[int, Field(ge=0, lt=1 << 48)]
Probability = Annotated[float, Field(ge=0, lt=1)]
PositiveFraction = Annotated[float, Field(gt=0, le=1)]
Fraction = Annotated[float, Field(ge=0, le=1)]
PositiveFloat = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegativeFloat = Annotated[float, Field(ge=0, allow_inf_nan=False)]
FiniteFloat = Annotated[float, Field(allow_inf_nan=False)]
