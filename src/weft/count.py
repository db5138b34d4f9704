"""Parameters and forward FLOPs of a spec, by name and shape, without building anything.

FLOPs are those of matrix products, two a multiply-add: what torch's FlopCounterMode counts.
"""
from collections.abc import Iterator
from math import prod

from . import spec as S
from .check import blocks as all_blocks

Shapes = Iterator[tuple[str, tuple[int, ...]]]


def total(m: S.Model) -> int:
    known: dict[tuple[int, int], int] = {}         # a block that stands at many depths is counted once
    for _, width, b in all_blocks(m):
        if (id(b), width) not in known:
            known[id(b), width] = sum(prod(shape) for _, shape in block(b, width))
    return sum(prod(shape) for _, shape in outside(m)) + sum(known[id(b), width] for _, width, b in all_blocks(m))


def shapes(m: S.Model) -> Shapes:
    """Every parameter's name and shape."""
    yield from outside(m)
    for path, width, b in all_blocks(m):
        yield from under(path, block(b, width))


def outside(m: S.Model) -> Shapes:
    """What is not in a block."""
    yield from source(m)
    if isinstance(m.target, S.Tokens):
        yield from under("target", tokens(m.target, m.width))
    elif isinstance(m.target, S.Shared):
        yield from under("target", around(m.target, table_width(m)))
    elif isinstance(m.target, S.Queries):
        yield "target.queries.weight", (m.target.count, m.width)
    for name, stack in (("encoder", m.encoder), ("decoder", m.decoder)):
        if isinstance(stack, S.Stack):
            yield from under(f"{name}.score", score(stack.score, stack.blocks[0].attention.inner))
            yield from norm(f"{name}.norm", stack.norm, m.width)
        elif stack is not None:
            for s in range(len(stack.stages) - 1):
                yield from norm(f"{name}.merges.{s}.norm", stack.merge, 4 * m.width << s)
                yield f"{name}.merges.{s}.reduce.weight", (2 * m.width << s, 4 * m.width << s)
            yield from norm(f"{name}.norm", stack.norm, out_width(m))
    if m.features is not None and m.features.combine == "weighted":
        yield "features.weight", (len(m.features.layers),)
    yield from under("head", head(m))


def under(path: str, rows: Shapes) -> Shapes:
    yield from ((f"{path}.{name}", shape) for name, shape in rows)


def linear(name: str, inputs: int, outputs: int, bias: bool = True) -> Shapes:
    yield f"{name}.weight", (outputs, inputs)
    if bias:
        yield f"{name}.bias", (outputs,)


def norm(name: str, n: S.Norm | None, width: int) -> Shapes:
    if n is not None:
        yield f"{name}.weight", (width,)
    if isinstance(n, S.LayerNorm) and n.bias:
        yield f"{name}.bias", (width,)


def out_width(m: S.Model) -> int:
    """Of what the head reads."""
    if m.features is not None and m.features.combine == "concat":
        return m.width * len(m.features.layers)
    return m.width << len(m.encoder.stages) - 1 if isinstance(m.encoder, S.Pyramid) else m.width


def table_width(m: S.Model) -> int:
    table = m.target if isinstance(m.target, S.Tokens) else m.source
    return (table.width if isinstance(table, S.Tokens) else None) or m.width


def vocabulary(m: S.Model) -> int:
    table = m.target if isinstance(m.target, S.Tokens) else m.source
    assert isinstance(table, S.Tokens)
    return table.vocabulary


def source(m: S.Model) -> Shapes:
    s, d = m.source, m.width
    if isinstance(s, S.Tokens):
        yield from under("source", tokens(s, d))
    elif isinstance(s, S.Patches):
        yield "source.patch.weight", (d, s.channels, s.patch, s.patch)
        yield "source.patch.bias", (d,)
        if s.tokens:
            yield "source.extra", (len(s.tokens), d)
        if isinstance(s.positions, S.Learned | S.Sine2D):
            yield "source.positions.weight", ((s.image // s.patch) ** 2 + len(s.tokens), d)
        yield from under("source.positions", grid(s.positions, d))
        yield from norm("source.norm", s.norm, d)
    else:
        yield from ((f"source.{name}.weight", shape) for name, shape, _ in convolutions(s))
        yield "source.project.weight", (d, s.widths[-1], 1, 1)
        yield "source.project.bias", (d,)
        yield from under("source.positions", grid(s.positions, d))


def grid(p: object, d: int) -> Shapes:
    if isinstance(p, S.Learned2D):
        yield from (("rows.weight", (p.count, d // 2)), ("columns.weight", (p.count, d // 2)))


def tokens(t: S.Tokens, d: int) -> Shapes:
    width = t.width or d
    yield "tokens.weight", (t.vocabulary, width)
    yield from around(t, width)
    if t.segments:
        yield "segments.weight", (t.segments, width)
    if width != d:
        yield from linear("project", width, d)


def around(t: S.Tokens | S.Shared, width: int) -> Shapes:
    if isinstance(t.positions, S.Learned):
        yield "positions.weight", (t.positions.count + t.positions.offset, width)
    yield from norm("norm", t.norm, width)


def convolutions(b: S.Backbone) -> Iterator[tuple[str, tuple[int, int, int, int], int]]:
    """ResNet v1.5: name, weight shape and stride of every convolution (He et al. 2015, arXiv:1512.03385)."""
    yield "stem.convolution", (b.stem, b.channels, 7, 7), 2
    before = b.stem
    for s, (depth, width) in enumerate(zip(b.depths, b.widths, strict=True)):
        for i in range(depth):
            name, middle, stride = f"stages.{s}.{i}", width // 4, 2 if s and not i else 1
            if before != width or stride > 1:
                yield f"{name}.shortcut.convolution", (width, before, 1, 1), stride
            yield f"{name}.layers.0.convolution", (middle, before, 1, 1), 1
            yield f"{name}.layers.1.convolution", (middle, middle, 3, 3), stride
            yield f"{name}.layers.2.convolution", (width, middle, 1, 1), 1
            before = width


def block(b: S.Block | S.Parallel, d: int) -> Shapes:
    for name in ("attention", "cross", "feedforward"):
        branch = getattr(b, name, None)
        if branch is not None:
            for place in ("before", "out", "after"):
                yield from norm(f"{name}.{place}", getattr(branch, place), d)
            if branch.layer_scale is not None:
                yield f"{name}.layer_scale.weight", (d,)
            yield from under(f"{name}.inner", inner(branch.inner, d))


def inner(x: S.Inner, d: int) -> Shapes:
    if isinstance(x, S.Attention):
        k, v, g = widths(x, d)
        yield from linear("query", d, x.heads * k, x.bias)
        yield from linear("key", d, g * k, x.bias)
        yield from linear("value", d, g * v, x.bias)
        yield from linear("out", x.heads * v, d, x.out_bias)
        yield from under("score", score(x.score, x))
        if x.qk_norm is not None:
            heads = (1, 1) if x.qk_norm.over == "head" else (x.heads, g)
            yield from norm("query_norm", x.qk_norm.norm, heads[0] * k)
            yield from norm("key_norm", x.qk_norm.norm, heads[1] * k)
        if isinstance(x.pattern, S.Linformer):
            yield from ((f"{name}.weight", (x.pattern.length, x.pattern.rank)) for name in ("keys", "values"))
        if isinstance(x.pattern, S.Windows) and x.pattern.bias:
            yield "offsets.weight", ((2 * x.pattern.size - 1) ** 2, x.heads)
    elif isinstance(x, S.Experts):
        yield "router.weight", (x.count, d)
        yield from ((name, (x.count, *shape)) for name, shape in inner(x.expert, d))
    else:
        for name in ("gate", "up") if isinstance(x, S.Gated) else ("up",):
            yield from linear(name, d, x.hidden, x.bias)
        yield from linear("down", x.hidden, d, x.bias)


def widths(a: S.Attention, d: int) -> tuple[int, int, int]:
    """d_k, d_v and the number of key/value heads."""
    key = a.key_width or d // a.heads
    return key, a.value_width or key, a.groups or a.heads


def score(s: S.Buckets | S.Alibi | None, a: S.Inner) -> Shapes:
    if isinstance(s, S.Buckets) and isinstance(a, S.Attention):
        yield "weight", (s.count, a.heads)


def head(m: S.Model) -> Shapes:
    h, d = m.head, out_width(m)
    narrow = table_width(m) if isinstance(h, S.Vocabulary) else d
    transform = None if isinstance(h, S.Boxes | S.Pixels) else h.transform
    if transform is not None:
        yield from linear("transform.dense", d, narrow, transform.bias)
        yield from norm("transform.norm", transform.norm, narrow)
    if isinstance(h, S.Vocabulary):
        if not h.tied:
            yield "out.weight", (vocabulary(m), narrow if transform else d)
        if h.bias == "trained":
            yield "bias", (vocabulary(m),)
    elif isinstance(h, S.Classes):
        if h.pool == "tokens":
            for i in range(len(m.source.tokens)):  # type: ignore[union-attr]
                yield from linear(f"out.{i}", d, h.outputs, h.bias)
        else:
            yield from linear("out", d, h.outputs, h.bias)
    elif isinstance(h, S.Tags):
        yield from linear("out", d, h.outputs)
    elif isinstance(h, S.Spans):
        yield from linear("out", d, 2)
    elif isinstance(h, S.Pixels):
        yield from pixels(h, m)
    elif isinstance(h, S.Boxes):
        yield from linear("classes", d, h.classes + 1)
        for i in range(h.layers):
            yield from linear(f"box.{i}", d, d if i < h.layers - 1 else 4)


def pixels(h: S.Pixels, m: S.Model) -> Shapes:
    assert isinstance(m.source, S.Patches)
    yield from linear("narrow", m.width, h.width)
    yield "mask", (h.width,)
    yield "positions.weight", ((m.source.image // m.source.patch) ** 2 + len(m.source.tokens), h.width)
    yield from under("stack.score", score(h.stack.score, h.stack.blocks[0].attention.inner))
    yield from norm("stack.norm", h.stack.norm, h.width)
    yield from linear("out", h.width, m.source.channels * m.source.patch ** 2)


# FLOPs

def window_block(w: S.Window, queries: int, keys: int) -> int | None:
    """Queries per block where attention in a window goes block by block (`layers.block_local`); None: with a mask
    it takes as long, or less."""
    reach = w.before + w.after
    size = min(max(1 << max((reach + 1).bit_length() - 2, 0), 32), 256)       # about half the window
    blocks = -(-queries // size)
    return size if queries >= 512 and 2 * blocks * size * (size + reach) < queries * keys else None


def flops(m: S.Model, batch: int = 1, length: int | None = None, target: int | None = None) -> int:
    """Forward FLOPs of matrix products for `batch` sequences of `length` (and `target`) tokens, or images."""
    side, count, work = inputs(m, length)
    targets = m.target.count if isinstance(m.target, S.Queries) else target or count
    if m.target is None:
        targets = count
    work += maps(source(m), count, "source.project") * isinstance(m.source, S.Tokens)
    if isinstance(m.target, S.Tokens):
        work += maps(tokens(m.target, m.width), targets, "project")
    for path, width, b in all_blocks(m):
        if isinstance(m.encoder, S.Pyramid):
            rows = -(-side // 2 ** int(path.split(".")[2]))
            work += block_flops(b, width, rows * rows, 0, rows)
        else:
            decodes = path.startswith("decoder")
            side = 0 if path.startswith("head") else side
            work += block_flops(b, width, targets if decodes else count, count if decodes else 0, side)
    if isinstance(m.encoder, S.Pyramid):
        for s in range(len(m.encoder.stages) - 1):
            side = -(-side // 2)
            work += 2 * side * side * (2 * m.width << s) * (4 * m.width << s)
        targets = side * side
    return batch * (work + head_flops(m, targets))


def inputs(m: S.Model, length: int | None) -> tuple[int, int, int]:
    """The image's side in cells, the number of tokens, and the FLOPs of making them."""
    if isinstance(m.source, S.Tokens):
        count = length or getattr(m.source.positions, "count", None) or 512
        return 0, count, 0
    if isinstance(m.source, S.Patches):
        side = -(-(length or m.source.image) // m.source.patch)
        conv = 2 * side * side * m.width * m.source.channels * m.source.patch ** 2
        return side, side * side + len(m.source.tokens), conv
    work, now, entry = 0, length or 224, 0
    for name, (o, i, k, _), stride in convolutions(m.source):
        if name.endswith(("shortcut.convolution", "layers.0.convolution")):
            entry = now                            # a shortcut reads what its block reads
        side = -(-(entry if "shortcut" in name else now) // stride)
        work += 2 * side * side * o * i * k * k
        if name.startswith("stem"):
            now = -(-side // 2)                    # the pooling after the stem
        elif "shortcut" not in name:
            now = side
    return now, now * now, work + 2 * now * now * m.width * m.source.widths[-1]


def maps(rows: Shapes, count: int, *names: str) -> int:
    """Linear maps of `count` tokens: every matrix among the rows (with these names)."""
    return sum(2 * count * prod(shape) for name, shape in rows
               if len(shape) == 2 and name.endswith(".weight") and (not names or name[:-7] in names))


def block_flops(b: S.Block | S.Parallel, d: int, count: int, memory: int, side: int) -> int:
    work = attention_flops(b.attention.inner, d, count, count, side)
    if isinstance(b, S.Block) and b.cross is not None:
        work += attention_flops(b.cross.inner, d, count, memory, side)
    ff = b.feedforward.inner
    if isinstance(ff, S.Experts):
        return work + 2 * count * d * ff.count + ff.chosen * maps(inner(ff.expert, d), count)
    return work + maps(inner(ff, d), count)


def attention_flops(a: S.Inner, d: int, queries: int, keys: int, side: int) -> int:
    assert isinstance(a, S.Attention)
    k, v, g = widths(a, d)
    if isinstance(a.pattern, S.Windows):
        window = min(a.pattern.size, side)         # it shrinks to a smaller grid
        padded = -(-side // window) * window
        queries = keys = padded * padded
        seen = window ** 2
        project = 0
    elif isinstance(a.pattern, S.Linformer):
        seen, project = a.pattern.rank, 2 * keys * a.pattern.rank * g * (k + v)
    else:
        seen, project = keys, 0
    scores = queries * seen
    if isinstance(a.pattern, S.Window):    # as computed: every query of a block meets all keys that the block can reach
        size = window_block(a.pattern, queries, keys)
        scores = scores if size is None else -(-queries // size) * size * (size + a.pattern.before + a.pattern.after)
    return 2 * queries * a.heads * d * (k + v) + 2 * scores * a.heads * (k + v) + 2 * keys * g * d * (k + v) + project


def head_flops(m: S.Model, count: int) -> int:
    h = m.head
    if isinstance(h, S.Classes) and h.pool == "tokens":
        tokens = len(getattr(m.source, "tokens", ()))
        return maps(head(m), 1) + (tokens - 1) * maps(head(m), 1, "transform.dense")
    if isinstance(h, S.Classes | S.Features):
        return maps(head(m), 1)
    if isinstance(h, S.Pixels):
        return maps(head(m), count, "narrow", "out")
    tied = 2 * count * vocabulary(m) * table_width(m) if isinstance(h, S.Vocabulary) and h.tied else 0
    return maps(head(m), count) + tied
