"""The reference: verbs from the parser, public names from `weft/__init__.pyi`."""

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
from weft.commands.verbs import parser
from weft.support.registry import CHOICES
from weft.support.values import format_inline

from .markdown import prose, table

LINE = 90  # columns of a signature
STUB = Path(weft.__file__).with_suffix(".pyi")
SECTION = re.compile(r"^(Args|Attributes|Returns|Raises|Yields|Example|Examples):$")
PAGES = {
    "spec": "Values that describe a model. They do not import torch and are validated on creation.",
    "recipe": "What a run is: model, task, data, optimiser, schedule and plan, "
    "as values without torch.",
    "observe": "Attention maps and their analysis.",
    "testing": "Checks for user-defined parts. All parts of Weft pass the same checks.",
}
TITLES = {
    "api": "High-level functions",
    "inference": "Opened models",
    "model": "Models",
    "interop": "Model directories",
    "generate": "Generation",
    "observe": "Inspection",
    "families": "Families",
    "registry": "Registering parts",
    "runs": "Runs",
    "recipe": "Base classes of recipe values",
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
        "Generated from the argument parser; `weft VERB --help` prints the same text.",
        "",
    ]
    rows = ((f"[`weft {name}`](#weft-{name})", verb.description) for name, verb in verbs().items())
    lines += [*table(("verb", "description"), ((a, prose(b or "")) for a, b in rows)), ""]
    for name, verb in verbs().items():
        actions = [action for action in verb._actions if action.dest != "help"]
        options = [
            (option_name(action), option_value(action), prose((action.help or "") % {}))
            for action in actions
        ]
        usage = re.sub(r"\s+", " ", verb.format_usage().removeprefix("usage: ")).strip()
        lines += [f"## weft {name}", "", prose(verb.description or ""), ""]
        lines += [
            "```text",
            usage,
            "```",
            "",
            *table(("option", "value", "description"), options),
            "",
        ]
    return "\n".join(lines)


# The library


def stub_names() -> dict[str, list[str]]:
    """Return the public names of `weft` by defining package.

    Modules and values have separate pages.
    """
    by_package: dict[str, list[str]] = {}
    for node in ast.parse(STUB.read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.module:
            package = node.module.partition(".")[0]
            by_package.setdefault(package, []).extend(alias.name for alias in node.names)
    return by_package


def plain_type(text: str) -> str:
    """Return a signature without module names and quotes, with functions in defaults as their
    names.
    """
    text = re.sub(r"\b(?:[a-zA-Z_]\w*\.)+(?=[A-Z]\w*)", "", text)
    text = re.sub(r"<(?:built-in )?function (\w+)[^>]*>", r"\1", text)
    return re.sub(r"(: |-> )'([^']*)'", r"\1\2", text)


def signature(name: str, thing: Any) -> str:
    """Return the signature on one line, or with one line per argument if it is long."""
    try:
        whole = inspect.signature(thing)
    except (TypeError, ValueError):
        return name
    line = name + plain_type(str(whole))
    if len(line) <= LINE:
        return line
    pieces = []
    bare = False
    for parameter in whole.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not bare:
            bare = True
            pieces.append("*")
        pieces.append(plain_type(str(parameter)))
    ending = str(whole).rpartition(") -> ")[2] if ") -> " in str(whole) else ""
    result = f" -> {plain_type(ending)}" if ending else ""
    return f"{name}(\n" + "".join(f"    {piece},\n" for piece in pieces) + f"){result}"


def docstring_lines(thing: Any) -> Iterator[str]:
    """Yield a Google-style docstring as Markdown: paragraphs, and one list per section."""
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
    """Yield the docstring of a value and a table of its fields, types and defaults."""
    yield from (f"### {name}", "")
    yield from docstring_lines(value)
    yield ""
    rows = []
    sources = field_sources(value)
    for field in fields(value):
        default = "required" if field.default is MISSING else f"`{format_inline(field.default)}`"
        annotation, comment = sources[field.name]
        rows.append((f"`{field.name}`", f"`{annotation}`", default, prose(comment)))
    if rows:
        yield from table(("field", "type", "default", "description"), rows)
        yield ""


def field_sources(value: type) -> dict[str, tuple[str, str]]:
    """Return the annotation of each field, as in the source, and its comment."""
    sources: dict[str, tuple[str, str]] = {}
    for cls in reversed([c for c in value.__mro__ if c.__module__.startswith("weft.")]):
        source = textwrap.dedent(inspect.getsource(cls))
        tokens = tokenize.generate_tokens(io.StringIO(source).readline)
        by_line = {t.start[0]: t.string.lstrip("# ") for t in tokens if t.type == tokenize.COMMENT}
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
                comments = [by_line[line] for line in lines if line in by_line]
                sources[node.target.id] = (ast.unparse(node.annotation), " ".join(comments))
    return sources


def class_lines(name: str, cls: type) -> Iterator[str]:
    yield from (f"### {name}", "", "```text", signature(name, cls), "```", "")
    yield from docstring_lines(cls)
    yield ""
    for method_name, method in vars(cls).items():
        plain = getattr(method, "__func__", method)
        if method_name.startswith("_") or not callable(plain) or not plain.__doc__:
            continue
        yield from (f"#### {name}.{method_name}", "", "```text")
        yield from (signature(method_name, plain), "```", "")
        yield from docstring_lines(plain)
        yield ""


def function_lines(name: str, function: Any) -> Iterator[str]:
    yield from (f"### {name}", "", "```text", signature(name, function), "```", "")
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
    """Return the page of the attributes of `weft`."""
    lines = [
        "# weft",
        "",
        "What `import weft` offers, from its stub and docstrings. "
        "The values of a spec are attributes of `weft` too:",
        "see [weft.spec](spec.md), [weft.recipe](recipe.md), [weft.observe](observe.md), "
        "[weft.testing](testing.md) and",
        "the [families](../families/index.md).",
        "",
    ]
    for package, names in stub_names().items():
        if package in PAGES and package != "recipe":
            names = [name for name in names if package == "observe"]
        if names:
            lines += [f"## {TITLES.get(package, package)}", ""]
            for name in names:
                lines += entry_lines(f"weft.{name}", getattr(weft, name))
    return "\n".join(lines)


def module_page(name: str) -> str:
    """Return the page of a public module: all names in its `__all__`."""
    module = import_module(f"weft.{name}")
    public = getattr(module, "__all__", None) or [n for n in vars(module) if not n.startswith("_")]
    lines = [f"# weft.{name}", "", PAGES[name], ""]
    for entry in public:
        lines += entry_lines(entry, getattr(module, entry))
    return "\n".join(lines)
