"""The reference: every verb from the parser, every public name from `weft/__init__.pyi` and its docstring."""

import argparse
import ast
import inspect
import io
import re
import textwrap
import tokenize
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import weft
from weft.cli import parser
from weft.registry import CHOICES
from weft.values import format_inline

from .markdown import prose, table

STUB = Path(weft.__file__).with_suffix(".pyi")
SECTION = re.compile(r"^(Args|Attributes|Returns|Raises|Yields|Example|Examples):$")
PAGES = {
    "spec": "What a model is: values without torch, checked when they are made.",
    "recipe": "What a run is: model, task, data, optimiser, schedule and plan, as values without torch.",
    "observe": "What a model does: attention maps and what is read from them.",
    "testing": "Checks for parts of your own, the same that Weft's parts pass.",
}
TITLES = {
    "api": "In one call",
    "inference": "An opened model",
    "model": "Models",
    "interop": "Folders",
    "generate": "Generation",
    "observe": "Looking inside",
    "families": "Families",
    "registry": "Parts of your own",
    "runs": "Runs",
    "recipe": "Bases of what a run is made of",
    "kernels": "Kernels",
    "layers": "Layers",
}


# The command line


def verbs() -> dict[str, argparse.ArgumentParser]:
    top = parser()
    return next(a.choices for a in top._actions if isinstance(a, argparse._SubParsersAction))


def option_name(action: argparse.Action) -> str:
    names = action.option_strings or [str(action.metavar or action.dest)]
    return " ".join(f"`{name}`" for name in names)


def option_value(action: argparse.Action) -> str:
    if not action.option_strings or action.nargs == 0:
        return "–"
    if action.choices:
        return " ".join(f"`{choice}`" for choice in action.choices)
    shown = action.metavar or action.dest.upper()
    name = " ".join(shown) if isinstance(shown, tuple) else str(shown)
    return f"`{name}`" + (" …" if action.nargs in ("+", "*") else "")


def cli_page() -> str:
    lines = [
        "# Command line",
        "",
        "Generated from the parser; `weft VERB --help` prints the same.",
        "",
    ]
    rows = ((f"[`weft {name}`](#weft-{name})", verb.description) for name, verb in verbs().items())
    lines += [*table(("verb", "what it does"), ((a, prose(b or "")) for a, b in rows)), ""]
    for name, verb in verbs().items():
        actions = [action for action in verb._actions if action.dest != "help"]
        options = [
            (option_name(action), option_value(action), prose((action.help or "") % {}))
            for action in actions
        ]
        usage = re.sub(r"\s+", " ", verb.format_usage().removeprefix("usage: ")).strip()
        lines += [f"## weft {name}", "", prose(verb.description or ""), ""]
        lines += ["```text", usage, "```", "", *table(("option", "value", "what"), options), ""]
    return "\n".join(lines)


# The library


def stub_names() -> dict[str, list[str]]:
    """Return the public names of `weft`, by the room that defines them; modules and values have pages of their own."""
    rooms: dict[str, list[str]] = {}
    for node in ast.parse(STUB.read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.module:
            room = node.module.partition(".")[0]
            rooms.setdefault(room, []).extend(alias.name for alias in node.names)
    return rooms


def signature(thing: Any) -> str:
    """Return the signature in one line, defaults as they are written."""
    try:
        text = str(inspect.signature(thing))
    except (TypeError, ValueError):
        return ""
    text = re.sub(r"\bweft(\.\w+)+\.(\w+)", r"\2", text)
    text = re.sub(r"\b(collections\.abc|typing|pathlib|torch\.nn\.modules\.module)\.", "", text)
    return text.replace("'", "")


def docstring_lines(thing: Any) -> Iterator[str]:
    """Yield a Google-style docstring as Markdown: paragraphs, and a list per section."""
    text = inspect.getdoc(thing) if "__doc__" in vars(thing) or callable(thing) else None
    inside = False
    for line in (text or "").splitlines():
        if heading := SECTION.match(line.strip()):
            inside = True
            yield from ("", f"**{heading[1]}**", "")
        elif inside and line.startswith("    ") and not line.startswith("        "):
            name, colon, rest = line.strip().partition(": ")
            yield (
                f"- `{name}`: {prose(rest)}"
                if colon and " " not in name
                else f"- {prose(line.strip())}"
            )
        elif inside and line.strip():
            yield f"  {prose(line.strip())}"
        else:
            inside = inside and not line
            yield prose(line.strip())


def value_lines(name: str, value: type) -> Iterator[str]:
    """Yield a value: its fields, their types and defaults, then what it says of itself."""
    yield from (f"### {name}", "")
    yield from docstring_lines(value)
    yield ""
    rows, comments = [], field_comments(value)
    for field in fields(value):
        default = "required" if field.default is MISSING else f"`{format_inline(field.default)}`"
        what = prose(comments.get(field.name, ""))
        rows.append((f"`{field.name}`", f"`{type_text(field.type)}`", default, what))
    if rows:
        yield from table(("field", "type", "default", "what"), rows)
        yield ""


def field_comments(value: type) -> dict[str, str]:
    """Return the comment beside each field of a value and of its bases, where its source has one."""
    comments: dict[str, str] = {}
    for cls in reversed([c for c in value.__mro__ if c.__module__.startswith("weft.")]):
        source = textwrap.dedent(inspect.getsource(cls))
        tokens = tokenize.generate_tokens(io.StringIO(source).readline)
        by_line = {t.start[0]: t.string.lstrip("# ") for t in tokens if t.type == tokenize.COMMENT}
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
                parts = [by_line[line] for line in lines if line in by_line]
                comments[node.target.id] = " ".join(parts)
    return comments


def type_text(annotation: Any) -> str:
    """Return an annotation as it is read: names without modules, `PositiveInt` by its bounds."""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    text = re.sub(r"Annotated\[(\w+), FieldInfo\(.*?metadata=\[(.*?)\]\)\]", r"\1, \2", text)
    return re.sub(r"\b(?:[a-z_]\w*\.)+(\w+)", r"\1", text)


def class_lines(name: str, cls: type) -> Iterator[str]:
    yield from (f"### {name}", "", "```text", f"{name}{signature(cls)}", "```", "")
    yield from docstring_lines(cls)
    yield ""
    for method_name, method in vars(cls).items():
        plain = getattr(method, "__func__", method)
        if method_name.startswith("_") or not callable(plain) or not plain.__doc__:
            continue
        yield from (f"#### {name}.{method_name}", "", "```text")
        yield from (f"{method_name}{signature(plain)}", "```", "")
        yield from docstring_lines(plain)
        yield ""


def function_lines(name: str, function: Any) -> Iterator[str]:
    yield from (f"### {name}", "", "```text", f"{name}{signature(function)}", "```", "")
    yield from docstring_lines(function)
    yield ""


def entry_lines(name: str, thing: Any) -> Iterator[str]:
    if isinstance(thing, type) and is_dataclass(thing) and CHOICES.get(thing.__name__) is thing:
        yield from value_lines(name, thing)
    elif isinstance(thing, type):
        yield from class_lines(name, thing)
    elif callable(thing):
        yield from function_lines(name, thing)


def api_page() -> str:
    """Return the page of what is an attribute of `weft` itself."""
    lines = [
        "# weft",
        "",
        "What `import weft` offers, from its stub and docstrings. The values of a spec are attributes of `weft` too:",
        "see [weft.spec](spec.md), [weft.recipe](recipe.md), [weft.observe](observe.md), [weft.testing](testing.md) and",
        "the [families](../families/index.md).",
        "",
    ]
    for room, names in stub_names().items():
        if room in PAGES and room != "recipe":
            names = [name for name in names if room == "observe"]
        if names:
            lines += [f"## {TITLES.get(room, room)}", ""]
            for name in names:
                lines += entry_lines(f"weft.{name}", getattr(weft, name))
    return "\n".join(lines)


def module_page(name: str) -> str:
    """Return the page of a public module: everything in its `__all__`."""
    module = import_module(f"weft.{name}")
    public = getattr(module, "__all__", None) or [n for n in vars(module) if not n.startswith("_")]
    lines = [f"# weft.{name}", "", PAGES[name], ""]
    for entry in public:
        lines += entry_lines(entry, getattr(module, entry))
    return "\n".join(lines)
