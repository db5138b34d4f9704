"""Descriptions of specs as text, equations, trees and tables, as `weft show` prints them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from math import prod
from typing import NamedTuple, TypeVar

from ..support.value_tree import fold_repeats, format_inline
from . import count
from .block import Block, Branch, LayerMix, ParallelBlock, Pyramid, Stack
from .count import iterate_blocks
from .heads import PixelDecoder
from .inputs import AnchorQueries, ObjectQueries, Patches, ResNet, SharedTokens, Tokens
from .norms import Norm, norm_shapes
from .parts import linear_shapes
from .spec import Spec

T = TypeVar("T")
NO_BREAK_SPACE = "\xa0"

# Numbers


def short(number: int, units: str = " KMBT", gap: str = "") -> str:
    """Format a number with three digits and a letter, as papers name sizes."""
    size = float(number)
    i = 0
    while size >= 999.5 and i < len(units) - 1:
        size = size / 1000
        i = i + 1
    return f"{size:.3g}{gap}{units[i].strip()}"


def default_length(spec: Spec) -> int:
    """Return the input that FLOPs are counted for: a number of tokens or an image size."""
    length: int = (
        getattr(spec.source.positions, "count", 512)
        if isinstance(spec.source, Tokens)
        else getattr(spec.source, "image_size", 224)
    )
    return length


def describe_workload(spec: Spec, length: int | None = None) -> str:
    n = length or default_length(spec)
    out = spec.target is not None
    return (
        f"{n:,} tokens" + f" in and {n:,} out" * out
        if isinstance(spec.source, Tokens)
        else f"an image of {n} × {n}"
    )


# Words


def class_name(x: object) -> str:
    return type(x).__name__


def describe_input(
    x: Tokens | SharedTokens | Patches | ResNet | ObjectQueries | AnchorQueries,
) -> str:
    if isinstance(x, AnchorQueries):
        return f"{x.count} learned boxes"
    if isinstance(x, ObjectQueries):
        return f"{x.count} learned queries"
    if isinstance(x, Patches):
        phrases = [
            f"patches of {x.patch_size} × {x.patch_size} in {x.image_size} × {x.image_size}",
            *([x.stem.describe()] if x.stem is not None else []),
            *(f"{t} token" for t in x.extra_tokens),
        ]
    else:
        phrases = ["the source's tokens" if isinstance(x, SharedTokens) else class_name(x).lower()]
    if x.positions:
        everywhere = getattr(x, "positions_at", "") == "attention"
        phrases.append(x.positions.describe() + (" at every attention" if everywhere else ""))
    if isinstance(x, Tokens | SharedTokens) and x.embedding_scale != 1:
        phrases.append(f"scaled by {x.embedding_scale:.4g}")
    return ", ".join(phrases)


# Equations


def describe_layer_mix(f: LayerMix) -> str:
    """Return the layers that a head reads."""
    if len(f.layers) == 1:
        return f"layer {f.layers[0]}"
    return f"layers {', '.join(map(str, f.layers))}: {f.combine}"


def wrap_in_norm(norm: Norm | None, text: str) -> str:
    return text if norm is None else f"{class_name(norm)}({text})"


def branch_term(b: Branch, memory: bool = False) -> str:
    inputs = wrap_in_norm(b.before, "x") + (", encoder" if memory else "")
    out = wrap_in_norm(b.out, f"{class_name(b.inner)}({inputs})")
    return f"LayerScale({out})" if b.layer_scale else out


def residual_sum(b: Branch, memory: bool) -> str:
    x = "x" if b.residual_scale == 1 else f"x * {b.residual_scale:.4g}"
    return f"{x} + {branch_term(b, memory)}"


def block_equation(block: Block | ParallelBlock) -> tuple[str, ...]:
    """Return a block as equations of x, one line per branch; parallel branches share one."""
    if isinstance(block, ParallelBlock):
        return (f"x <- x + {branch_term(block.attention)} + {branch_term(block.feedforward)}",)
    branches = ((block.attention, False), (block.cross_attention, True), (block.feedforward, False))
    return tuple(
        f"x <- {wrap_in_norm(b.after, residual_sum(b, memory))}"
        for b, memory in branches
        if b is not None
    )


def stack_equations(spec: Spec) -> list[tuple[str, tuple[str, ...]]]:
    """Return, per stack, the runs of blocks with equal equations."""
    equations = []
    for name, group in groupby(iterate_blocks(spec), lambda placed: placed.place):
        equations += [
            (f"{name}, {times} × block", lines)
            for times, run in fold_repeats([block_equation(placed.block) for placed in group])
            for lines in run
        ]
    return equations


# The tree


class TreeLine(NamedTuple):
    """A line of the tree."""

    name: str
    text: str
    parameters: int
    children: tuple["TreeLine", ...] = ()


def tensor_lines(rows: Iterable[tuple[str, tuple[int, ...]]]) -> tuple[TreeLine, ...]:
    """Return parameters with weight and bias, or neighbours of one shape, on one line."""
    shapes: dict[str, list[tuple[int, ...]]] = {}
    for name, shape in rows:
        shapes.setdefault(name.removesuffix(".weight").removesuffix(".bias"), []).append(shape)
    return tuple(
        TreeLine(
            ", ".join(names := list(group)),
            " + ".join(" × ".join(map(str, s)) for s in same),
            len(names) * sum(map(prod, same)),
        )
        for same, group in groupby(shapes, shapes.__getitem__)
    )


def tree_node(name: str, words: str, *parts: TreeLine) -> TreeLine:
    return TreeLine(name, words, sum(p.parameters for p in parts), parts)


def branch_line(name: str, b: Branch, d: int) -> TreeLine:
    text = b.inner.describe(d) + (f", starts × {b.init_gain:.4g}" if b.init_gain != 1 else "")
    text += f", layer scale from {b.layer_scale.initial:g}" if b.layer_scale else ""
    scale = iter([("layer_scale.weight", (d,))] if b.layer_scale else [])
    return tree_node(
        name,
        text,
        *tensor_lines(norm_shapes("norm before", b.before, d)),
        *tensor_lines(b.inner.shapes(d)),
        *tensor_lines(norm_shapes("norm out", b.out, d)),
        *tensor_lines(scale),
        *tensor_lines(norm_shapes("norm after", b.after, d)),
    )


def block_lines(items: Sequence[Block | ParallelBlock], d: int) -> Iterator[TreeLine]:
    for times, pattern in fold_repeats(items):
        if len(pattern) > 1:
            once = tuple(block_lines(pattern, d))
            yield TreeLine(
                f"{times} × {len(pattern)} blocks",
                "in this order",
                times * sum(p.parameters for p in once),
                once,
            )
            continue
        parts = [
            (name, getattr(pattern[0], name, None))
            for name in ("attention", "cross_attention", "feedforward")
        ]
        one = tree_node(
            "block", "", *(branch_line(name, b, d) for name, b in parts if b is not None)
        )
        yield (
            one
            if times == 1
            else TreeLine(
                f"{times} × block", f"{one.parameters:,} each", times * one.parameters, one.children
            )
        )


def without_drop_path(block: Block | ParallelBlock) -> Block | ParallelBlock:
    """Return a block without stochastic depth, which differs between blocks."""
    if not (block.attention.drop_path or block.feedforward.drop_path):
        return block
    return replace(
        block,
        attention=replace(block.attention, drop_path=0.0),
        feedforward=replace(block.feedforward, drop_path=0.0),
    )


def describe_stack(stack: Stack) -> str:
    """Return the shared position bias, or the parts of a stack without blocks."""
    if type(stack) is not Stack:
        return format_inline(stack)
    return stack.position_bias.describe() if stack.position_bias else ""


def stack_line(name: str, stack: Stack | Pyramid, d: int) -> TreeLine:
    """Return a stack's blocks, shared bias and norm, or a pyramid's stages and merges."""
    if isinstance(stack, Stack):
        return tree_node(
            name,
            describe_stack(stack),
            *block_lines([without_drop_path(b) for b in stack.blocks], d),
            *tensor_lines(stack.shapes(d)),
        )
    parts: list[TreeLine] = []
    for s, stage in enumerate(stack.stages):
        parts.append(
            tree_node(
                f"stage {s}",
                f"width {d << s}",
                *block_lines([without_drop_path(b) for b in stage], d << s),
            )
        )
        if s + 1 < len(stack.stages):
            four = 4 * d << s
            rows = (
                *norm_shapes("norm", stack.merge_norm, four),
                *linear_shapes("reduce", four, four // 2, bias=False),
            )
            parts.append(tree_node("merge", "2 × 2 neighbours", *tensor_lines(rows)))
    return tree_node(
        name,
        "pyramid",
        *parts,
        *tensor_lines(norm_shapes("norm", stack.norm, d << len(stack.stages) - 1)),
    )


def model_tree(name: str, spec: Spec) -> TreeLine:
    """Return the tree of a model; its sums equal `Spec.parameter_count`."""
    rows: dict[str, list[tuple[str, tuple[int, ...]]]] = {
        "source": [],
        "target": [],
        "layer_mix": [],
        "head": [],
    }
    net = 0
    for path, shape in count.parameter_shapes(spec):
        place, _, rest = path.partition(".")
        if rest.startswith(("stem.", "stages.")) and place == "source":
            net += prod(shape)
        elif place in rows and not rest.startswith("stack.blocks."):
            rows[place].append((rest, shape))
    ends = {place: tensor_lines(some) for place, some in rows.items()}
    first = (
        (TreeLine("ResNet", "-".join(map(str, spec.source.depths)), net),)
        if isinstance(spec.source, ResNet)
        else ()
    )
    light = (
        block_lines(spec.head.stack.blocks, spec.head.width)
        if isinstance(spec.head, PixelDecoder)
        else ()
    )
    return tree_node(
        name,
        "",
        tree_node("source", describe_input(spec.source), *first, *ends["source"]),
        *(
            [tree_node("target", describe_input(spec.target), *ends["target"])]
            if spec.target
            else []
        ),
        *(
            stack_line(n, stack, spec.width)
            for n, stack in (("encoder", spec.encoder), ("decoder", spec.decoder))
            if stack
        ),
        *(
            [
                TreeLine(
                    "layer_mix",
                    describe_layer_mix(spec.layer_mix),
                    sum(prod(s) for _, s in rows["layer_mix"]),
                )
            ]
            if spec.layer_mix
            else []
        ),
        tree_node("head", spec.head.describe(), *light, *ends["head"]),
    )


def tree_rows(line: TreeLine, guide: str = "", here: str = "") -> Iterator[tuple[str, str, str]]:
    yield here + line.name, line.text, f"{line.parameters:,}"
    for i, child in enumerate(line.children):
        last = i == len(line.children) - 1
        yield from tree_rows(
            child, guide + ("  " if last else "│ "), guide + ("└ " if last else "├ ")
        )
