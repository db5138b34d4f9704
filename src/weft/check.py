"""What does not fit together in a model, each problem with its path and the way out."""
from collections.abc import Iterator

from . import spec as S

Problem = tuple[str, str]


def problems(m: S.Model) -> Iterator[Problem]:
    yield from empty(m)
    yield from parts(m)
    seen: set[tuple[str, int, int]] = set()
    for path, width, block in blocks(m):
        if (key := (path[:7], width, id(block))) in seen:
            continue                       # the same block at another depth
        seen.add(key)
        yield from branches(path, block, m)
        for name in ("attention", "cross"):
            branch = getattr(block, name, None)
            if branch is not None and isinstance(branch.inner, S.Attention):
                yield from attention(f"{path}.{name}.inner", branch.inner, width, m)
    yield from routers(m)
    yield from sums(m)
    yield from features(m)
    yield from head(m)


def blocks(m: S.Model) -> Iterator[tuple[str, int, S.Block | S.Parallel]]:
    """Every block with its path and its width."""
    for name, stack in (("encoder", m.encoder), ("decoder", m.decoder), ("head.stack", getattr(m.head, "stack", None))):
        if isinstance(stack, S.Stack):
            width = m.head.width if isinstance(m.head, S.Pixels) and name == "head.stack" else m.width
            yield from ((f"{name}.blocks.{i}", width, b) for i, b in enumerate(stack.blocks))
        elif stack is not None:
            yield from ((f"{name}.stages.{s}.{i}", m.width << s, b)
                        for s, stage in enumerate(stack.stages) for i, b in enumerate(stage))


def empty(m: S.Model) -> Iterator[Problem]:
    for path, blocks in (("encoder", m.encoder), ("decoder", m.decoder), ("head.stack", getattr(m.head, "stack", None))):
        if isinstance(blocks, S.Stack) and not blocks.blocks:
            yield f"{path}.blocks", "a stack needs a block"
        if isinstance(blocks, S.Pyramid) and not all((blocks.stages, *blocks.stages)):
            yield f"{path}.stages", "a pyramid needs a stage, and a stage a block"
    if isinstance(m.source, S.Backbone) and not m.source.depths:
        yield "source.depths", "a backbone needs a stage"


def parts(m: S.Model) -> Iterator[Problem]:
    if m.encoder is None and m.decoder is None:
        yield "encoder", "a model needs an encoder or a decoder; give a Stack to one of them"
    if m.encoder is not None and m.decoder is not None and m.target is None:
        yield "target", "the decoder beside an encoder needs an input; give target=Shared(), Tokens(...) or Queries(...)"
    if (m.encoder is None or m.decoder is None) and m.target is not None:
        yield "target", "only an encoder with a decoder has a target; leave it None"
    if isinstance(m.target, S.Shared) and not isinstance(m.source, S.Tokens):
        yield "target", "Shared() reads the source's token table, but the source has none; give Tokens(...)"
    if isinstance(m.encoder, S.Pyramid) and m.decoder is not None:
        yield "decoder", "a Pyramid's output is wider than the decoder; leave it None"
    if isinstance(m.target, S.Shared) and isinstance(m.source, S.Tokens) and m.source.width not in (None, m.width):
        yield "target", "the source's table is narrower than the model; give target=Tokens(...)"
    if isinstance(m.target, S.Tokens) and m.target.segments:
        yield "target.segments", "only the source has segments; leave it None"
    if isinstance(m.source, S.Patches) and len(set(m.source.tokens)) < len(m.source.tokens):
        yield "source.tokens", "each extra token once"
    if isinstance(m.encoder, S.Pyramid) and not (isinstance(m.source, S.Patches) and not m.source.tokens):
        yield "source", "a Pyramid works on a pure image grid; give Patches(tokens=())"
    if isinstance(m.source, S.Patches) and m.source.image % m.source.patch:
        yield "source.patch", f"{m.source.patch} does not divide the image, {m.source.image}"
    if isinstance(m.source, S.Patches) and m.source.positions == S.Sine2D(scale="unit"):
        yield "source.positions.scale", "patches count cells; use 'grid'"
    if isinstance(m.source, S.Backbone) and m.source.positions == S.Sine2D(scale="grid"):
        yield "source.positions.scale", "a backbone's image may be padded; use 'unit'"
    if isinstance(m.source, S.Patches) and isinstance(m.source.positions, S.Learned) and m.source.positions.offset:
        yield "source.positions.offset", "patches have no rows to leave out; use 0"
    if isinstance(m.source, S.Backbone) and len(m.source.depths) != len(m.source.widths):
        yield "source.depths", "one depth and one width a stage; give both the same length"
    if isinstance(m.source, S.Patches) and isinstance(m.source.positions, S.Learned) and \
            m.source.positions.count != (m.source.image // m.source.patch) ** 2 + len(m.source.tokens):
        cells = (m.source.image // m.source.patch) ** 2 + len(m.source.tokens)
        yield "source.positions.count", f"{m.source.positions.count} is not one a patch and token; give {cells}"


def branches(path: str, block: S.Block | S.Parallel, m: S.Model) -> Iterator[Problem]:
    if not isinstance(block.attention.inner, S.Attention):
        yield f"{path}.attention.inner", "must be an Attention"
    if isinstance(block.feedforward.inner, S.Attention):
        yield f"{path}.feedforward.inner", "must be Dense, Gated or Experts"
    experts = block.feedforward.inner
    if isinstance(experts, S.Experts) and experts.chosen > experts.count:
        yield f"{path}.feedforward.inner.chosen", f"{experts.chosen} of {experts.count} experts; choose at most all"
    if isinstance(block, S.Parallel):
        for name in ("attention", "feedforward"):
            branch = getattr(block, name)
            if branch.after is not None or branch.alpha != 1:
                yield f"{path}.{name}", "parallel branches share one sum: no `after`, alpha 1; use before or out"
    crosses = isinstance(block, S.Block) and block.cross is not None
    wanted = path.startswith("decoder") and m.encoder is not None
    if crosses != wanted:
        yield f"{path}.cross", "a decoder block beside an encoder needs a cross branch" if wanted else \
            "there is no encoder's output to look at; leave it None"
    if isinstance(block, S.Block) and block.cross is not None:
        inner = block.cross.inner
        if not isinstance(inner, S.Attention) or inner.pattern != S.Full() or inner.rotary or inner.score:
            yield f"{path}.cross.inner", "must be an Attention with pattern Full, without rotary or score"


def routers(m: S.Model) -> Iterator[Problem]:
    layers = [(path, b.feedforward.inner) for path, _, b in blocks(m) if isinstance(b.feedforward.inner, S.Experts)]
    for path, layer in layers:
        for name in ("balance", "z_loss"):
            if getattr(layer, name) != (first := getattr(layers[0][1], name)):
                yield f"{path}.feedforward.inner.{name}", f"is {first} in {layers[0][0]}; give all experts of a model the same"
                return


def attention(path: str, a: S.Attention, width: int, m: S.Model) -> Iterator[Problem]:
    if a.key_width is None and width % a.heads:
        yield f"{path}.heads", f"{a.heads} does not divide the width {width}; choose a divisor or give key_width"
    if a.groups is not None and a.heads % a.groups:
        yield f"{path}.groups", f"{a.groups} does not divide the {a.heads} heads; choose a divisor"
    if a.rotary is not None:
        turned = a.rotary.fraction * (a.key_width or width // a.heads)
        if turned < 2 or int(turned) % 2:
            yield f"{path}.rotary.fraction", f"turns {turned:g} of a head's numbers; make that even and at least 2"
    if isinstance(a.pattern, S.Windows):
        if not isinstance(m.source, S.Patches) or m.source.tokens or not path.startswith("encoder"):
            yield f"{path}.pattern", "Windows need an encoder on a pure image grid; give source=Patches(tokens=())"
        if a.pattern.shift >= a.pattern.size:
            yield f"{path}.pattern.shift", f"{a.pattern.shift} is not within the window, {a.pattern.size}"
        if a.rotary or a.score:
            yield f"{path}.pattern", "Windows carry their own bias; leave rotary and score None"
    if isinstance(m.encoder, S.Pyramid) and path.startswith("encoder") and (
            not isinstance(a.pattern, S.Windows | S.Full) or a.rotary or a.score):
        yield f"{path}.pattern", "a Pyramid looks through Windows or at everything, without rotary or score"
    if isinstance(a.pattern, S.Linformer) and (a.rotary or a.score):
        yield f"{path}.pattern", "Linformer's keys have no position any more; leave rotary and score None"
    reads_tokens = not isinstance(m.target if m.encoder else m.source, S.Queries | S.Patches | S.Backbone)
    looks_ahead = not (isinstance(a.pattern, S.Causal) or (isinstance(a.pattern, S.Window) and not a.pattern.after))
    if path.startswith("decoder") and ".attention." in path and reads_tokens and looks_ahead:
        yield f"{path}.pattern", "a decoder of tokens must not look ahead; use Causal() or Window(before=…, after=0)"
    if isinstance(a.score, S.Buckets):
        yield from buckets(f"{path}.score", a.score)


def buckets(path: str, b: S.Buckets) -> Iterator[Problem]:
    exact = b.count // (4 if b.sided else 2)
    if b.count % 2 or exact < 1 or b.distance <= exact:
        yield path, f"{b.count} buckets to distance {b.distance}: give an even count of 4 or more and a longer distance"


def sums(m: S.Model) -> Iterator[Problem]:
    for name, stack in (("encoder", m.encoder), ("decoder", m.decoder), ("head.stack", getattr(m.head, "stack", None))):
        if not isinstance(stack, S.Stack) or stack.score is None:
            continue
        inners = [b.attention.inner for b in stack.blocks]
        if len({a.heads for a in inners if isinstance(a, S.Attention)}) > 1:
            yield f"{name}.score", "is shared by all blocks, so all need the same number of heads"
        if any(isinstance(a, S.Attention) and isinstance(a.pattern, S.Windows | S.Linformer) for a in inners):
            yield f"{name}.score", "does not go with Windows or Linformer; leave it None"
        if isinstance(stack.score, S.Buckets):
            yield from buckets(f"{name}.score", stack.score)
    for path, part in (("source", m.source), ("target", m.target)):
        positions = getattr(part, "positions", None)
        unit = {S.Sinusoid: 2, S.Learned2D: 2, S.Sine2D: 4}.get(type(positions), 1)
        width = (part.width if isinstance(part, S.Tokens) else None) or m.width
        if width % unit:
            yield f"{path}.positions", f"needs a width that {unit} divides, not {width}"


def features(m: S.Model) -> Iterator[Problem]:
    stack = m.decoder or m.encoder
    if m.features is None or stack is None:
        return
    if isinstance(stack, S.Pyramid) or not isinstance(m.head, S.Classes | S.Tags | S.Spans | S.Features):
        yield "features", "layers are read by Classes, Tags, Spans or Features from a Stack; leave it None"
        return
    depth = len(stack.blocks)
    wrong = [i for i in m.features.layers if not -depth - 1 <= i <= depth]
    if wrong:
        yield "features.layers", f"there is no layer {wrong[0]}: 0 are the embeddings, {depth} or -1 is the last block's output"
    elif len({i % (depth + 1) for i in m.features.layers}) < len(m.features.layers):
        yield "features.layers", f"{m.features.layers} name a layer twice; each once"


def head(m: S.Model) -> Iterator[Problem]:
    h = m.head
    table = m.target if isinstance(m.target, S.Tokens) else m.source
    if isinstance(h, S.Vocabulary):
        if not isinstance(table, S.Tokens) or isinstance(m.target, S.Queries):
            yield "head", "Vocabulary needs a token table; give Classes, Tags, Boxes or Features"
        elif h.tied and table.width not in (None, m.width) and h.transform is None:
            yield "head.transform", "the tied table is narrower than the model; give a Transform to its width"
    if isinstance(h, S.Classes) and h.pool == "tokens" and not getattr(m.source, "tokens", ()):
        yield "head.pool", "there are no extra tokens to read; use 'first', 'last' or 'mean'"
    if isinstance(h, S.Classes) and m.decoder is not None and h.pool in ("first", "tokens") and not isinstance(m.target, S.Queries):
        yield "head.pool", f"{h.pool!r} of a decoder sees no other token; use 'last' or 'mean'"
    if isinstance(h, S.Pixels) and m.decoder is not None:
        yield "head", "Pixels read an encoder; leave the decoder None"
    if isinstance(h, S.Pixels) and not (isinstance(m.source, S.Patches) and isinstance(m.encoder, S.Stack) and m.source.tokens):
        yield "head", "Pixels are rebuilt from patches behind a class token; give source=Patches(...) and an encoder"
    if isinstance(h, S.Pixels) and h.width % 4:
        yield "head.width", f"the sine positions need a width that 4 divides, not {h.width}"
    if isinstance(h, S.Boxes) and not isinstance(m.target, S.Queries):
        yield "head", "Boxes are read from object queries; give target=Queries(...)"
    outputs = h.classes if isinstance(h, S.Boxes) else getattr(h, "outputs", 0)
    labels = getattr(h, "labels", None)
    if labels is not None and len(labels) != outputs:
        yield "head.labels", f"{len(labels)} names for {outputs} outputs; give one a class"
