"""Specs in words, equations, trees and tables: what the command prints about a model before any is built."""
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from math import prod
from textwrap import wrap
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from . import count
from . import spec as S
from .check import blocks as every_block
from .families import families
from .values import runs as runs

if TYPE_CHECKING:
    from rich.console import RenderableType as Page


T = TypeVar("T")
GLUE = "\xa0"                              # a space at which no line breaks


# Numbers

def short(number: int, units: str = " KMBT", gap: str = "") -> str:
    """Three digits and a letter, as papers name sizes."""
    size, i = float(number), 0
    while size >= 999.5 and i < len(units) - 1:
        size, i = size / 1000, i + 1
    return f"{size:.3g}{gap}{units[i].strip()}"


def length(m: S.Model) -> int:
    """What FLOPs are stated for: tokens, or the side of an image."""
    found: int = getattr(m.source.positions, "count", 512) if isinstance(m.source, S.Tokens) else getattr(m.source, "image", 224)
    return found


def workload(m: S.Model) -> str:
    n, out = length(m), m.target is not None
    return f"{n:,} tokens" + f" in and {n:,} out" * out if isinstance(m.source, S.Tokens) else f"an image of {n} × {n}"


# Words

def named(x: object) -> str:
    return type(x).__name__


def attention(a: S.Attention, width: int) -> str:
    """Heads, groups, pattern and positions in few words."""
    k, v, g = count.widths(a, width)
    said = [f"{a.heads} head{'s' * (a.heads > 1)} of {k}"]
    said += [f"values of {v}"] * (v != k) + [f"{g} key/value head{'s' * (g > 1)}"] * (g != a.heads)
    said += [pattern(a.pattern)]
    if a.rotary is not None:
        said.append("rotary" + (f" on {a.rotary.fraction:.0%}" if a.rotary.fraction < 1 else "")
                    + (f" of base {a.rotary.theta:,.0f}" if a.rotary.theta != 10_000 else "")
                    + (f" stretched × {a.rotary.stretch.factor:g}" if a.rotary.stretch else ""))
    said += [score(a.score)] if a.score else []
    said += ["unscaled" if a.scale == 1 else f"scaled by {a.scale:.4g}"] if a.scale else []
    said += [f"scores capped at {a.softcap:g}"] if a.softcap else []
    if a.qk_norm is not None:
        said.append(f"{named(a.qk_norm.norm)} on the queries and keys of {'each head' if a.qk_norm.over == 'head' else 'all heads'}")
    return ", ".join(said)


def pattern(p: object) -> str:
    if isinstance(p, S.Window):
        return f"window of {p.before:,} before and {p.after:,} after" if p.after else f"causal window of {p.before + 1:,}"
    if isinstance(p, S.Windows):
        return f"windows of {p.size} × {p.size}" + f" shifted by {p.shift}" * (p.shift > 0)
    return f"Linformer, {p.length:,} keys to {p.rank:,}" if isinstance(p, S.Linformer) else named(p).lower()


def score(s: object) -> str:
    if isinstance(s, S.Buckets):
        return f"{s.count} {'two' if s.sided else 'one'}-sided buckets to distance {s.distance}"
    return "ALiBi" if isinstance(s, S.Alibi) else ""


def inner(x: S.Inner, width: int) -> str:
    if isinstance(x, S.Attention):
        return attention(x, width)
    if isinstance(x, S.Experts):
        return f"{x.chosen} of {x.count} experts, {inner(x.expert, width)}"
    return f"{named(x).lower()}, hidden {x.hidden:,}, {x.activation}"


POSITIONS = {S.Sinusoid: "sinusoids", S.Learned: "learned positions", S.Learned2D: "learned rows and columns",
             S.Sine2D: "sinusoids of row and column"}


def reads(x: S.Tokens | S.Shared | S.Patches | S.Backbone | S.Queries) -> str:
    if isinstance(x, S.Queries):
        return f"{x.count} learned queries"
    if isinstance(x, S.Patches):
        said = [f"patches of {x.patch} × {x.patch} in {x.image} × {x.image}", *(f"{t} token" for t in x.tokens)]
    else:
        said = ["the source's tokens" if isinstance(x, S.Shared) else named(x).lower()]
    said += [POSITIONS[type(x.positions)] + " at every attention" * (getattr(x, "door", "") == "attention")] if x.positions else []
    said += [f"scaled by {x.scale:.4g}"] if isinstance(x, S.Tokens | S.Shared) and x.scale != 1 else []
    return ", ".join(said)


def writes(h: object) -> str:
    if isinstance(h, S.Vocabulary):
        return f"vocabulary, {'tied to the token table' if h.tied else 'a table of its own'}" + (
            f", logits capped at {h.softcap:g}" if h.softcap else "")
    if isinstance(h, S.Classes):
        where = {"tokens": "each extra token", "mean": "the mean"}.get(h.pool, f"the {h.pool} token")
        return f"{h.outputs:,} class{'es' * (h.outputs > 1)} from {where}"
    if isinstance(h, S.Tags):
        return f"{h.outputs:,} score{'s' * (h.outputs > 1)} a token"
    if isinstance(h, S.Boxes):
        return f"{h.classes:,} classes and a box"
    return {"Spans": "start and end of an answer", "Pixels": "pixels of hidden patches", "Features": "the vectors"}[named(h)]


# Equations

def layers(f: S.Layers) -> str:
    """Which layers a head reads."""
    return f"layer{'s' * (len(f.layers) > 1)} {', '.join(map(str, f.layers))}" + f": {f.combine}" * (len(f.layers) > 1)


def around(norm: S.Norm | None, text: str) -> str:
    return text if norm is None else f"{named(norm)}({text})"


def term(b: S.Branch, memory: bool = False) -> str:
    out = around(b.out, f"{named(b.inner)}({around(b.before, 'x')}{', encoder' * memory})")
    return f"LayerScale({out})" if b.layer_scale else out


def equation(block: S.Block | S.Parallel) -> tuple[str, ...]:
    """A block as what it does to x, one line a branch; parallel branches share one."""
    if isinstance(block, S.Parallel):
        return (f"x <- x + {term(block.attention)} + {term(block.feedforward)}",)
    branches = ((block.attention, False), (block.cross, True), (block.feedforward, False))
    return tuple(f"x <- {around(b.after, ('x' if b.alpha == 1 else f'x * {b.alpha:.4g}') + ' + ' + term(b, memory))}"
                 for b, memory in branches if b is not None)


def equations(m: S.Model) -> list[tuple[str, tuple[str, ...]]]:
    """Each stack's runs of blocks that are written alike."""
    found = []
    for name, group in groupby(every_block(m), lambda row: row[0].partition(".")[0]):
        found += [(f"{name}, {times} × block", lines) for times, run in runs([equation(b) for _, _, b in group]) for lines in run]
    return found


# The tree

class Part(NamedTuple):
    """A line of the tree."""
    name: str
    words: str
    parameters: int
    parts: tuple["Part", ...] = ()


def tensors(rows: Iterable[tuple[str, tuple[int, ...]]]) -> tuple[Part, ...]:
    """Weight and bias on one line, and so neighbours of one shape."""
    shapes: dict[str, list[tuple[int, ...]]] = {}
    for name, shape in rows:
        shapes.setdefault(name.removesuffix(".weight").removesuffix(".bias"), []).append(shape)
    return tuple(Part(", ".join(names := list(group)), " + ".join(" × ".join(map(str, s)) for s in same), len(names) * sum(map(prod, same)))
                 for same, group in groupby(shapes, shapes.__getitem__))


def whole(name: str, words: str, *parts: Part) -> Part:
    return Part(name, words, sum(p.parameters for p in parts), parts)


def branch(name: str, b: S.Branch, d: int) -> Part:
    said = inner(b.inner, d) + (f", starts × {b.gain:.4g}" if b.gain != 1 else "")
    said += f", layer scale from {b.layer_scale.initial:g}" if b.layer_scale else ""
    scale = iter([("layer_scale.weight", (d,))] if b.layer_scale else [])
    return whole(name, said, *tensors(count.norm("norm before", b.before, d)), *tensors(count.inner(b.inner, d)),
                 *tensors(count.norm("norm out", b.out, d)), *tensors(scale), *tensors(count.norm("norm after", b.after, d)))


def blocks(items: Sequence[S.Block | S.Parallel], d: int) -> Iterator[Part]:
    for times, pattern in runs(items):
        if len(pattern) > 1:
            once = tuple(blocks(pattern, d))
            yield Part(f"{times} × {len(pattern)} blocks", "in this order", times * sum(p.parameters for p in once), once)
            continue
        parts = [(name, getattr(pattern[0], name, None)) for name in ("attention", "cross", "feedforward")]
        one = whole("block", "", *(branch(name, b, d) for name, b in parts if b is not None))
        yield one if times == 1 else Part(f"{times} × block", f"{one.parameters:,} each", times * one.parameters, one.parts)


def even(block: S.Block | S.Parallel) -> S.Block | S.Parallel:
    """A block but for stochastic depth, which grows with the depth and would tell all blocks apart."""
    if not (block.attention.skip or block.feedforward.skip):
        return block
    return replace(block, attention=replace(block.attention, skip=0.0), feedforward=replace(block.feedforward, skip=0.0))


def body(name: str, stack: S.Stack | S.Pyramid, d: int) -> Part:
    """A stack's blocks, shared scores, norm; a pyramid's stages and what merges them."""
    if isinstance(stack, S.Stack):
        shared = count.under("score", count.score(stack.score, stack.blocks[0].attention.inner))
        return whole(name, score(stack.score), *blocks([even(b) for b in stack.blocks], d), *tensors(shared),
                     *tensors(count.norm("norm", stack.norm, d)))
    parts: list[Part] = []
    for s, stage in enumerate(stack.stages):
        parts.append(whole(f"stage {s}", f"width {d << s}", *blocks([even(b) for b in stage], d << s)))
        if s + 1 < len(stack.stages):
            four = 4 * d << s
            rows = (*count.norm("norm", stack.merge, four), *count.linear("reduce", four, four // 2, bias=False))
            parts.append(whole("merge", "2 × 2 neighbours", *tensors(rows)))
    return whole(name, "pyramid", *parts, *tensors(count.norm("norm", stack.norm, d << len(stack.stages) - 1)))


def tree(name: str, m: S.Model) -> Part:
    """A whole model; its sums are those of `Model.parameters`."""
    rows: dict[str, list[tuple[str, tuple[int, ...]]]] = {"source": [], "target": [], "features": [], "head": []}
    net = 0
    for path, shape in count.shapes(m):
        place, _, rest = path.partition(".")
        if rest.startswith(("stem.", "stages.")) and place == "source":
            net += prod(shape)
        elif place in rows and not rest.startswith("stack.blocks."):
            rows[place].append((rest, shape))
    ends = {place: tensors(some) for place, some in rows.items()}
    first = (Part("ResNet", "-".join(map(str, m.source.depths)), net),) if isinstance(m.source, S.Backbone) else ()
    light = blocks(m.head.stack.blocks, m.head.width) if isinstance(m.head, S.Pixels) else ()
    return whole(name, "", whole("source", reads(m.source), *first, *ends["source"]),
                 *([whole("target", reads(m.target), *ends["target"])] if m.target else []),
                 *(body(n, stack, m.width) for n, stack in (("encoder", m.encoder), ("decoder", m.decoder)) if stack),
                 *([Part("features", layers(m.features), sum(prod(s) for _, s in rows["features"]))] if m.features else []),
                 whole("head", writes(m.head), *light, *ends["head"]))


# Pages

def plain(*columns: str, rows: Sequence[Sequence[str]], width: int) -> "Page":
    """A table without lines. Its second column wraps, beneath the guides of a tree; numbers stand to the right."""
    from rich.table import Table
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False)
    for i, column in enumerate(columns):
        table.add_column(column, justify="right" if i and all(row[i][:1].isdigit() for row in rows) else "left")
    taken = sum(2 + max(len(row[i]) for row in (columns, *rows)) for i in range(len(columns)) if i != 1)
    for row, below in zip(rows, (*rows[1:], columns), strict=True):
        text, *more = wrap(row[1], max(width - taken, 24), break_on_hyphens=False) or [""]
        table.add_row(row[0], text.replace(GLUE, " "), *row[2:])
        guide = below[0][:len(below[0]) - len(below[0].lstrip("│├└ "))].replace("├", "│").replace("└", "│")
        for text in more:
            table.add_row(guide, text.replace(GLUE, " "))
    return table


def sizes() -> list[dict[str, Any]]:
    return [{"family": f.name, "sizes": {s: f(s).parameters() for s in f.sizes}, "paper": f.paper} for f in families()]


def catalogue(found: list[dict[str, Any]], width: int) -> "Page":
    rows = [(f["family"], ", ".join(f"{s}{GLUE}{short(n)}" for s, n in f["sizes"].items()), f["paper"]) for f in found]
    return plain("family", "sizes and parameters", "paper", rows=rows, width=width)


def folders(found: dict[str, dict[str, Any]], width: int) -> "Page":
    rows = [(did, f"{f['folder']}: {f['family'] or 'own layout'}, {', '.join(f['files'])}", f"{f['parameters']:,}")
            for did, f in found.items()]
    return plain("", "folder", "parameters", rows=rows, width=width)


def differences(found: dict[str, float], checks: dict[str, str], width: int) -> "Page":
    return plain("compared", "largest difference", rows=[*((name, f"{d:.2e}") for name, d in found.items()), *checks.items()], width=width)


def lines(part: Part, guide: str = "", here: str = "") -> Iterator[tuple[str, str, str]]:
    yield here + part.name, part.words, f"{part.parameters:,}"
    for i, child in enumerate(part.parts):
        last = i == len(part.parts) - 1
        yield from lines(child, guide + ("  " if last else "│ "), guide + ("└ " if last else "├ "))


def page(name: str, m: S.Model, width: int) -> "Page":
    """A model on a page: its parts, its equations, its cost."""
    from rich.console import Group
    said = "".join(f"\n{heading}\n" + "".join(f"  {line}\n" for line in block) for heading, block in equations(m))
    cost = f"{m.parameters():,} parameters, {short(m.flops(length=length(m)), ' KMGTPE', ' ')}FLOPs forward for {workload(m)}"
    return Group(plain("part", "what", "parameters", rows=list(lines(tree(name, m))), width=width), said, cost)
