"""Tables for handwritten pages: tasks and examples of user-defined parts."""

import ast
from collections.abc import Iterator
from pathlib import Path

from weft.recipe import Task
from weft.support.registry import members

from .markdown import first_paragraph, fold, prose, table
from .usage import ROOT, usage_of


def task_rows() -> Iterator[tuple[str, ...]]:
    for task in members(Task):
        if not task.__module__.startswith("weft."):
            continue  # user-defined: not in the reference
        usage = usage_of(task.__name__)
        yield (
            f"[`{task.__name__}`](reference/recipe.md#{task.__name__.lower()})",
            prose(first_paragraph(task.__doc__)),
            ", ".join(f"`{schema.__name__}`" for schema in task.row_schemas),
            f"`{task.head.__name__}`",
            ", ".join(f"`{name}`" for name in task.metrics) or "loss",
            f"`weft {task.verb}`" if task.verb else "–",
            fold(usage.summary(), usage.links(), 30),
        )


def tasks_table() -> Iterator[str]:
    header = ("task", "description", "rows", "head", "metrics", "verb", "recipes")
    yield from table(header, task_rows())


def example_files() -> list[Path]:
    return sorted((ROOT / "examples" / "extend").glob("*.py"))


def extension_examples() -> Iterator[str]:
    """Yield the examples of user-defined parts: description and source of each."""
    for path in example_files():
        source = path.read_text()
        tree = ast.parse(source)
        docstring = ast.get_docstring(tree) or ""
        first = tree.body[1].lineno - 1  # after the docstring
        yield f"### {path.stem}"
        yield ""
        yield prose(first_paragraph(docstring))
        yield ""
        yield from (f'??? example "examples/extend/{path.name}"', "")
        yield "    ```python"
        body = "\n".join(source.splitlines()[first:]).strip("\n")
        yield from (f"    {line}".rstrip() for line in body.splitlines())
        yield "    ```"
        yield ""
