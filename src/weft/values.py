"""Plain values: frozen, checked when made, compared and hashed by content, to JSON and back."""
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from hashlib import sha256
from typing import Any, TypeVar, dataclass_transform

from pydantic import ConfigDict, ValidationError
from pydantic.dataclasses import dataclass

from .words import suggest as suggest

T = TypeVar("T")
FIT = 88                                   # columns of a line of a tree
KINDS: dict[str, type] = {}                # every value class by its name, which is its "kind" in JSON


@dataclass_transform(frozen_default=True, kw_only_default=True)
def value(cls: type[T]) -> type[T]:
    """A frozen dataclass whose fields are checked on the way in, with one line for what is wrong."""
    made: Any = dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid", strict=True))(cls)
    validate: Callable[..., None] = made.__init__

    def __init__(self: Any, *unnamed: Any, **given: Any) -> None:
        if unnamed:
            raise ValueError(f"{made.__name__} takes its fields by name: {made.__name__}({fields(made)[0].name}=…)")
        try:
            validate(self, **given)
        except ValidationError as error:
            by_field: dict[str, list[Any]] = {}
            for problem in error.errors():
                by_field.setdefault(str(problem["loc"][:1]), []).append(problem)
            raise ValueError("; ".join(explain(made, problems) for problems in by_field.values())) from None

    made.__init__ = __init__
    made.__str__ = lambda self: "\n".join(tree(self))
    KINDS[made.__name__] = made
    done: type[T] = made
    return done


def explain(cls: type, problems: list[Any]) -> str:
    """One line for one field: a union's field has a problem a member."""
    problem, kinds = problems[0], [p["ctx"]["class_name"] for p in problems if p["type"].startswith("dataclass")]
    name, known = str(problem["loc"][0]) if problem["loc"] else "", [f.name for f in fields(cls)]
    if problem["type"] == "unexpected_keyword_argument":
        return f"{cls.__name__} has no field {name!r}; {suggest(name, known)}"
    if problem["type"] == "missing":
        return f"{cls.__name__} needs {name!r}"
    if problem["type"] == "value_error":
        return str(problem["ctx"]["error"])
    given = repr(problem["input"])
    given = given if len(given) <= 60 else f"{given[:57]}…"
    if kinds:
        return f"{cls.__name__}.{name} = {given}: give one of {', '.join(kinds)}"
    if problem["type"] == "tuple_type":
        return f"{cls.__name__}.{name} = {given}: give a tuple"
    said = dict.fromkeys(f"{p['msg'][:1].lower()}{p['msg'][1:]}" for p in problems if p["input"] is problem["input"])
    return f"{cls.__name__}.{name} = {given}: {' or '.join(said).replace(' or input should', ' or')}"


# On the screen: an indented tree of what differs from the defaults

def runs(items: Sequence[T], longest: int = 6) -> list[tuple[int, Sequence[T]]]:
    """Repeated patterns folded, so that a depth of 96 reads like a depth of one: (times, pattern)."""
    found, i = [], 0
    while i < len(items):
        times, period = 1, 1
        for p in range(1, longest + 1):
            n = 1
            while items[i:i + p] == items[i + n * p:i + (n + 1) * p]:
                n += 1
            if n > 1 and n * p > times * period:
                times, period = n, p
        found.append((times, items[i:i + period]))
        i += times * period
    return found


def chosen(thing: Any) -> dict[str, Any]:
    """The fields of a value that are not at their default."""
    return {f.name: own for f in fields(thing) if (own := getattr(thing, f.name)) != f.default}


def brief(thing: Any) -> str:
    """A value on one line."""
    if is_dataclass(thing):
        return f"{type(thing).__name__}({', '.join(f'{name}={brief(part)}' for name, part in chosen(thing).items())})"
    if isinstance(thing, tuple):
        return f"({', '.join(map(brief, thing))}{',' * (len(thing) == 1)})"
    return f"{thing:.6g}" if isinstance(thing, float) else repr(thing)


def tree(thing: Any, label: str = "", indent: str = "") -> Iterator[str]:
    """A value on one line where it fits and holds no items, else a line a field, further in; repeated items are counted."""
    line = f"{indent}{label}{brief(thing)}"
    if not (nested(thing) or is_dataclass(thing)) or (len(line) <= FIT and not holds_items(thing)):
        yield line
    elif is_dataclass(thing):
        yield f"{indent}{label}{type(thing).__name__}"
        for name, part in chosen(thing).items():
            yield from tree(part, f"{name}: ", indent + "  ")
    else:
        yield f"{indent}{label}".rstrip()
        at = 0
        for times, pattern in runs(thing):
            inner = indent + "  "
            if len(pattern) > 1 and times > 1:
                yield f"{inner}{times} × {len(pattern)} in this order"
                inner += "  "
            many = f"{times} × " if times > 1 and len(pattern) == 1 else ""
            for i, item in enumerate(pattern):
                yield from tree(item, many or (f"{at + i}: " if isinstance(item, tuple) else ""), inner)
            at += times * len(pattern)


def holds_items(thing: Any) -> bool:
    return nested(thing) or (is_dataclass(thing) and any(holds_items(getattr(thing, f.name)) for f in fields(thing)))


def nested(thing: Any) -> bool:
    return isinstance(thing, tuple) and any(is_dataclass(item) or nested(item) for item in thing)


# JSON

def to_plain(thing: Any) -> Any:
    if is_dataclass(thing):
        return {"kind": type(thing).__name__} | {f.name: to_plain(getattr(thing, f.name)) for f in fields(thing)}
    return [to_plain(item) for item in thing] if isinstance(thing, tuple) else thing


def from_plain(plain: Any, path: str = "") -> Any:
    """The value that `to_plain` wrote; an error names the path to what is wrong."""
    if isinstance(plain, list):
        return tuple(from_plain(item, f"{path}.{i}".lstrip(".")) for i, item in enumerate(plain))
    if not isinstance(plain, dict):
        return plain
    where = f"{path}: " if path else ""
    kind = plain.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(f"{where}no value of kind {kind!r}; {suggest(str(kind), list(KINDS))}")
    parts = {name: from_plain(part, f"{path}.{name}".lstrip(".")) for name, part in plain.items() if name != "kind"}
    try:
        return KINDS[kind](**parts)
    except ValueError as error:
        raise ValueError(f"{where}{error}") from None


def to_json(thing: Any) -> str:
    return json.dumps(to_plain(thing), indent=1)


def from_json(text: str) -> Any:
    return from_plain(json.loads(text))


class Damaged(ValueError):
    """A file is not as it was written."""


def digest(*parts: Any) -> str:
    """The SHA-256 of plain values."""
    return sha256(json.dumps(parts, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


SEAL = re.compile(r'"seal": "([0-9a-f]{64})"\n}$')
UNSEALED = "0" * 64


def seal(content: dict[str, Any]) -> bytes:
    """JSON that ends with the SHA-256 of all its other bytes, so that `unseal` notices a changed bit."""
    text = json.dumps(content | {"seal": UNSEALED}, indent=1)
    before, _, after = text.rpartition(UNSEALED)
    return (before + sha256(text.encode()).hexdigest() + after).encode()


def unseal(text: str) -> dict[str, Any]:
    """What `seal` wrote, byte by byte; ValueError if it is not that any more."""
    content, found = json.loads(text), SEAL.search(text)
    if found is None or sha256((text[:found.start(1)] + UNSEALED + text[found.end(1):]).encode()).hexdigest() != found[1]:
        raise Damaged("it does not match its own SHA-256")
    del content["seal"]
    unsealed: dict[str, Any] = content
    return unsealed


def leaves(thing: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every plain field of a value with its dotted path."""
    if is_dataclass(thing):
        for f in fields(thing):
            yield from leaves(getattr(thing, f.name), f"{path}.{f.name}".lstrip("."))
    elif isinstance(thing, tuple) and any(is_dataclass(item) or isinstance(item, tuple) for item in thing):
        for i, item in enumerate(thing):
            yield from leaves(item, f"{path}.{i}")
    else:
        yield path, thing


def paths(plain: Any, path: str = "") -> dict[str, Any]:
    """What `to_plain` wrote, by dotted paths: every field, and the kind of every value."""
    parts = plain.items() if isinstance(plain, dict) else enumerate(plain) if isinstance(plain, list) else None
    if parts is None:
        return {path: plain}
    return {name: leaf for key, part in parts for name, leaf in paths(part, f"{path}.{key}".lstrip(".")).items()}


def at(thing: Any, path: str) -> Any:
    """The part of a value at a dotted path; `length` counts a tuple."""
    for name in path.split(".") if path else ():
        if isinstance(thing, tuple):
            thing = len(thing) if name == "length" else thing[int(name)]
        else:
            thing = getattr(thing, name)
    return thing


def put(thing: Any, path: str, new: Any) -> Any:
    """A copy of a value with the part at a dotted path replaced."""
    if not path:
        return new
    name, _, rest = path.partition(".")
    if isinstance(thing, tuple):
        i = int(name)
        return (*thing[:i], put(thing[i], rest, new), *thing[i + 1:])
    known = {f.name: getattr(thing, f.name) for f in fields(thing)}
    if name not in known:
        raise ValueError(f"{type(thing).__name__} has no field {name!r}; {suggest(name, list(known))}")
    return type(thing)(**known | {name: put(known[name], rest, new)})
