"""The table of choices, from the registry: computation, paper, usage and measured effect."""

from collections.abc import Iterator
from typing import Literal, get_args, get_type_hints

import weft.recipe
import weft.spec as S
from weft.nn.kernels.attention import AttentionBackend
from weft.recipe.data.formats import Format
from weft.recipe.metrics import Metric
from weft.spec.describe import block_equation
from weft.support.registry import CHOICES, names

from .markdown import first_paragraph, fold, paper_links, prose, slug, table
from .measured import measured_effect
from .usage import usage_of

# Section titles by the module of a choice, or else of its open base; others use its name.
TITLES = {
    "norms": "Norms",
    "positions": "Positions",
    "attention": "Attention",
    "feedforward": "Feed-forward layers",
    "block": "Blocks and stacks",
    "inputs": "Inputs",
    "stems": "Image stems",
    "heads": "Heads",
    "initialisation": "Initialisation",
    "optimisers": "Optimisers",
    "schedules": "Schedules",
    "averages": "Weight averages",
    "trainable": "Trainable parameters",
    "task": "Tasks",
    "detection": "Tasks",
    "rows": "Row schemas",
    "conversations": "Row schemas",
    "tokenizers": "Tokenizers",
    "batching": "Batches",
    "filters": "Filters",
    "transforms": "Image transforms",
    "parallel": "Parallelism and memory",
    "sampling": "Sampling",
    "spec": "Top-level values",
    "recipe": "Top-level values",
    "data": "Top-level values",
}
ACTIVATIONS = {
    "relu": ("max(0, x)", ""),
    "gelu": ("x · Φ(x), Φ is the CDF of the normal distribution", "arXiv:1606.08415"),
    "gelu_tanh": (
        "x / 2 · (1 + tanh(√(2/π) · (x + 0.044715 x³))), approximates gelu",
        "arXiv:1606.08415",
    ),
    "quick_gelu": ("x · σ(1.702 x), approximates gelu", "arXiv:1606.08415"),
    "silu": ("x · σ(x), also called swish", "arXiv:1702.03118, arXiv:1710.05941"),
    "tanh": ("tanh(x)", ""),
    "prelu": ("max(0, x) + a · min(0, x) with a trained a", "arXiv:1502.01852"),
}
PLACEMENTS = {
    "post_norm": "arXiv:1706.03762",
    "pre_norm": "arXiv:2002.04745",
    "sandwich_norm": "arXiv:2105.13290",
    "out": "arXiv:2501.00656",
    "deepnorm_branch": "arXiv:2203.00555",
    "parallel": "arXiv:2204.06745",
}
HEADER = ("choice", "description", "paper", "used by", "measured effect")
INTRODUCTION = """# Table of choices

All parts of models and runs, generated from the registry. A choice is a named value: use it in
a spec or a recipe, or set it on the command line with `--set`. "Measured effect" links to a
comparison with a receipt, or shows "not measured yet".
The [reference](reference/spec.md) lists the fields of each value.
"""


def section_of(choice: type) -> str:
    """Return the section title of a choice, from its own module or that of its open base."""
    bases = [base for base in choice.__mro__ if base.__module__.startswith("weft.")]
    modules = [base.__module__.rpartition(".")[2] for base in (choice, *bases[-1:])]
    name = next((module for module in modules if module in TITLES), modules[-1])
    return TITLES.get(name, name.replace("_", " ").capitalize())


def choices_by_section() -> dict[str, list[type]]:
    by_section: dict[str, list[type]] = {title: [] for title in dict.fromkeys(TITLES.values())}
    for choice in CHOICES.values():
        by_section.setdefault(section_of(choice), []).append(choice)
    return by_section


def row(mark: str, name: str, what: str, paper: str, measured: str = "") -> tuple[str, ...]:
    usage = usage_of(mark)
    used = fold(usage.summary(), usage.links()) or "–"
    return name, what, paper_links(paper) or "–", used, measured or measured_effect(mark)


def reference_page(choice: type) -> str:
    """Return the reference link of a choice; "" for a user-defined one."""
    name = choice.__name__
    package, *modules = choice.__module__.split(".")
    if package != "weft":
        return ""
    module = modules[0]
    return (
        f"reference/{module}.md#{name.lower()}"
        if module in ("spec", "recipe")
        else f"reference/api.md#{slug(f'weft.{name}')}"
    )


def choice_rows(choices: list[type]) -> Iterator[tuple[str, ...]]:
    for choice in choices:
        text = first_paragraph(choice.__doc__)
        name = choice.__name__
        page = reference_page(choice)
        link = f"[`{name}`]({page})" if page else f"`{name}`"
        yield row(name, link, prose(text), choice.__doc__ or "")


def activation_rows() -> Iterator[tuple[str, ...]]:
    hints = get_type_hints(S.MLP)
    names = [name for name in get_args(hints["activation"]) if isinstance(name, str)]
    assert Literal[tuple(names)] == hints["activation"], "activations are names"
    for name in names:
        equation, paper = ACTIVATIONS[name]
        yield row(f"activation={name}", f"`{name}`", prose(equation), paper)


def placement_rows() -> Iterator[tuple[str, ...]]:
    norm = S.LayerNorm()
    inner = S.MLP(hidden=4)
    branches = {
        "out": S.Branch(inner=inner, out=norm),
        "post_norm": S.post_norm(norm, inner),
        "pre_norm": S.pre_norm(norm, inner),
        "sandwich_norm": S.sandwich_norm(norm, inner),
        "deepnorm_branch": S.deepnorm_branch(norm, inner, S.deepnorm_scales("encoder", encoder=6)),
    }
    for name, paper in PLACEMENTS.items():
        if name == "parallel":
            block: S.Block | S.ParallelBlock = S.ParallelBlock(
                attention=S.pre_norm(norm, inner), feedforward=S.pre_norm(norm, inner)
            )
        else:
            block = S.Block(attention=branches[name], feedforward=branches[name])
        equation = block_equation(block)[-1].replace("MLP", "F").replace("LayerNorm", "Norm")
        shown = {"parallel": "ParallelBlock", "out": "Branch(out=…)"}.get(name, name)
        yield row(name, f"`{shown}`", f"`{equation}`", paper)


def choices_page() -> str:
    """Return the page: one table per section, for parts of the block, then for parts of a run."""
    lines = [INTRODUCTION]
    for title, choices in choices_by_section().items():
        if choices:
            lines += [f"## {title}", "", *table(HEADER, choice_rows(choices)), ""]
        if title == "Norms":
            lines += ["## Norm placement", "", *table(HEADER, placement_rows()), ""]
        if title == "Feed-forward layers":
            lines += ["## Activations", "", *table(HEADER, activation_rows()), ""]
    lines += ["## By name", "", "Registered by name instead of as a value.", ""]
    by_name = (
        ("metrics", Metric),
        ("data formats", Format),
        ("attention backends", AttentionBackend),
    )
    rows = ((kind, ", ".join(f"`{name}`" for name in names(base))) for kind, base in by_name)
    lines += [*table(("kind", "names"), rows), ""]
    return "\n".join(lines)


# Importing these modules registers the parts of a run and the sampling methods.
assert weft.recipe
assert weft.Sampling
