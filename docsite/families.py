"""One page per family, generated from its file: paper, sizes, equations, tree, published
classes.
"""

from collections.abc import Iterator
from importlib import import_module
from typing import Any

from weft.families import Family, families
from weft.spec.describe import (
    default_length,
    describe_workload,
    model_tree,
    short,
    stack_equations,
    tree_rows,
)
from weft.support.values import format_inline

from .markdown import first_paragraph, paper_links, prose, table
from .usage import recipe_files


def module_text(family: Family) -> str:
    """Return the one-sentence description of a family from its module docstring."""
    return first_paragraph(import_module(family.build_spec.__module__).__doc__)


def kind_of(family: Family) -> str:
    spec = family(next(iter(family.sizes)))
    encoder = spec.encoder is not None
    decoder = spec.decoder is not None
    both = "encoder-decoder" if decoder else "encoder"
    kind = both if encoder else "decoder"
    return kind if type(spec.source).__name__ in ("Tokens", "SharedTokens") else f"{kind} of images"


def size_rows(family: Family) -> Iterator[tuple[str, ...]]:
    columns = size_columns(family)
    for size, values in family.sizes.items():
        spec = family(size)
        flops = spec.flops(length=default_length(spec))
        cells = [shown(values.get(column)) for column in columns]
        yield (
            f"`{size}`",
            f"{spec.parameter_count():,}",
            f"{short(flops, ' KMGTPE', ' ')}FLOP",
            describe_workload(spec),
            *cells,
        )


def size_columns(family: Family) -> list[str]:
    return list(dict.fromkeys(column for values in family.sizes.values() for column in values))


def shown(value: Any) -> str:
    if value is None:
        return "–"
    return (
        f"{value:,}"
        if isinstance(value, int) and not isinstance(value, bool)
        else format_inline(value)
    )


def load_lines(family: Family) -> Iterator[str]:
    size = next(iter(family.sizes))
    yield from ("```python", "import weft", "", f'spec = weft.{family.name}("{size}")')
    yield "print(spec)  # every field that differs from its default"
    yield "```"
    if not family.heads:
        yield ""
        yield (
            "transformers has no class for this family, so there are no published directories "
            "to "
            "load."
        )
        return
    yield ""
    yield (
        "`weft.load(FOLDER)` opens a directory or a name on the Hugging Face hub whose "
        f"`config.json` has `model_type` `{family.model_type}`. "
        "`weft.save(model, FOLDER)` writes such a directory. "
        "`weft verify FOLDER` compares the outputs of both libraries."
    )
    yield ""
    heads = ((f"`{name}`",) for name in family.heads)
    yield from table(("class of transformers",), heads)


def recipe_links(family: Family) -> str:
    """Return links to the recipes that use the family."""
    words = (f"weft.{family.name}(", f"families.{family.name}", f" {family.name}(")
    return ", ".join(
        f"[{path.name}](../recipe/{path.stem}.md)"
        for path in recipe_files()
        if any(word in path.read_text() for word in words)
    )


def family_page(family: Family) -> str:
    size = next(iter(family.sizes))
    spec = family(size)
    recipes = recipe_links(family)
    equations = [
        line
        for heading, lines in stack_equations(spec)
        for line in (heading, *(f"  {equation}" for equation in lines))
    ]
    tree = [
        f"{name:<34} {parameters:>13}  {text}".rstrip()
        for name, text, parameters in tree_rows(model_tree(f"{family.name}-{size}", spec))
    ]
    header = (
        "size",
        "parameters",
        "forward",
        "for",
        *(f"`{name}`" for name in size_columns(family)),
    )
    lines = [
        f"# {family.name}",
        "",
        prose(module_text(family)),
        "",
        f"Paper: {paper_links(family.paper) or family.paper}. Kind: {kind_of(family)}."
        + (f" Recipes: {recipes}." if recipes else ""),
        "",
        "## Sizes",
        "",
        "Parameters and FLOPs are computed from the spec. FLOPs count matrix products only, "
        "two per multiply-add.",
        "",
        *table(header, size_rows(family)),
        "",
        "## Load and save",
        "",
        *load_lines(family),
        "",
        "## Block",
        "",
        "```text",
        *equations,
        "```",
        "",
        f"## Model `{family.name}-{size}`",
        "",
        "```text",
        *tree,
        "```",
        "",
    ]
    return "\n".join(lines)


def family_rows() -> Iterator[tuple[str, ...]]:
    for family in families():
        counts = [family(size).parameter_count() for size in family.sizes]
        span = short(min(counts)) + (f" to {short(max(counts))}" if len(counts) > 1 else "")
        classes = ", ".join(f"`{name}`" for name in list(family.heads)[:1]) or "–"
        yield (
            f"[{family.name}]({family.name}.md)",
            kind_of(family),
            str(len(family.sizes)),
            span,
            classes,
            paper_links(family.paper) or family.paper,
        )


def families_page() -> str:
    header = ("family", "kind", "sizes", "parameters", "first class of transformers", "paper")
    lines = [
        "# Families",
        "",
        "Each architecture is one file: the size table of the paper, a function from its columns "
        "to a spec, and a weight table that reads and writes the published files. "
        "`weft families` prints the same list; `weft show NAME` describes one model.",
        "",
        *table(header, family_rows()),
        "",
    ]
    return "\n".join(lines)
