"""Checks of a spec: each problem names a field's path and a fix."""

from collections.abc import Iterable, Iterator

from ..support.registry import members
from .attention import Attention, FullAttention
from .block import Block, ParallelBlock, Pyramid, Stack
from .count import PlacedBlock, iterate_blocks
from .feedforward import FeedForwardSpec, MixtureOfExperts
from .heads import Head, SpecWithHead
from .inputs import AnchorQueries, ObjectQueries, Patches, ResNet, SharedTokens, Tokens
from .norms import GroupNorm
from .parts import Problem
from .positions import LearnedPositions, LearnedPositions2D
from .stems import ResNetStem


def find_problems(spec: SpecWithHead) -> Iterator[Problem]:
    """Yield every problem of a spec as (path, message)."""
    yield from check_not_empty(spec)
    yield from check_parts(spec)
    blocks: dict[tuple[str, int, int], PlacedBlock] = {}
    for placed in iterate_blocks(spec):  # the same block at another depth is checked once
        blocks.setdefault((placed.place, placed.width, id(placed.block)), placed)
    for path, width, block, *_ in blocks.values():
        yield from check_branches(path, block, spec)
        for name in ("attention", "cross_attention"):
            branch = getattr(block, name, None)
            if branch is not None and isinstance(branch.inner, Attention):
                yield from check_attention(f"{path}.{name}.inner", branch.inner, width, spec)
    yield from check_routers(blocks.values())
    yield from check_position_bias(spec)
    yield from check_image_positions(spec)
    yield from check_layer_mix(spec)
    yield from spec.head.check(spec)


def check_not_empty(spec: SpecWithHead) -> Iterator[Problem]:
    for path, stack in (
        ("encoder", spec.encoder),
        ("decoder", spec.decoder),
        ("head.stack", getattr(spec.head, "stack", None)),
    ):
        if type(stack) is Stack and not stack.blocks:
            yield f"{path}.blocks", "is empty; give at least one Block"
        if isinstance(stack, Pyramid) and not all((stack.stages, *stack.stages)):
            yield (
                f"{path}.stages",
                "has an empty stage; give at least one stage with at least one Block each",
            )
    for path, resnet in (
        ("source", spec.source),
        ("source.stem", getattr(spec.source, "stem", None)),
    ):
        if isinstance(resnet, ResNet | ResNetStem):
            yield from check_resnet(path, resnet)


def check_resnet(path: str, resnet: ResNet | ResNetStem) -> Iterator[Problem]:
    if not resnet.depths:
        yield f"{path}.depths", "is empty; give one depth per stage, such as (3, 4, 6, 3)"
    if len(resnet.depths) != len(resnet.widths):
        yield (
            f"{path}.depths",
            f"has {len(resnet.depths)} stages but widths has {len(resnet.widths)}; give both the "
            "same length",
        )
    if isinstance(resnet.norm, GroupNorm):
        groups = resnet.norm.groups
        narrow = 4 if resnet.block == "bottleneck" else 1
        widths = (resnet.stem_width, *(width // narrow for width in resnet.widths))
        if any(width % groups for width in widths):
            yield (
                f"{path}.norm.groups",
                f"{groups} does not divide every channel count in {widths}; choose a common "
                "divisor",
            )


def check_parts(spec: SpecWithHead) -> Iterator[Problem]:
    if spec.encoder is None and spec.decoder is None:
        yield "encoder", "a model needs an encoder or a decoder; give a Stack to one of them"
    if spec.encoder is not None and spec.decoder is not None and spec.target is None:
        yield (
            "target",
            "a decoder after an encoder needs an input; give target=SharedTokens(), Tokens(...) "
            "or ObjectQueries(...)",
        )
    if (spec.encoder is None or spec.decoder is None) and spec.target is not None:
        yield "target", "only encoder-decoder models have a target; set it to None"
    if isinstance(spec.target, SharedTokens) and not isinstance(spec.source, Tokens):
        yield (
            "target",
            "SharedTokens() reads the source's token table, but the source has none; give "
            "Tokens(...)",
        )
    if isinstance(spec.encoder, Pyramid) and spec.decoder is not None:
        yield "decoder", "a Pyramid's output is wider than a decoder's input; set decoder to None"
    if (
        isinstance(spec.target, SharedTokens)
        and isinstance(spec.source, Tokens)
        and spec.source.embedding_dim not in (None, spec.width)
    ):
        yield "target", "the source's table is narrower than the model; give target=Tokens(...)"
    if isinstance(spec.target, Tokens) and spec.target.token_types:
        yield "target.token_types", "only the source has segments; set it to None"
    if isinstance(spec.source, Patches) and len(set(spec.source.extra_tokens)) < len(
        spec.source.extra_tokens
    ):
        yield "source.extra_tokens", "has duplicates; give each extra token once"
    if isinstance(spec.encoder, Pyramid) and not (
        isinstance(spec.source, Patches) and not spec.source.extra_tokens
    ):
        yield (
            "source",
            "a Pyramid needs an image grid without extra tokens; give Patches(extra_tokens=())",
        )
    if isinstance(spec.source, Patches) and spec.source.image_size % spec.source.patch_size:
        yield (
            "source.patch_size",
            f"{spec.source.patch_size} does not divide image_size {spec.source.image_size}; choose "
            "a divisor",
        )
    stem = spec.source.stem if isinstance(spec.source, Patches) else None
    if stem is not None and stem.stride != getattr(spec.source, "patch_size", None):
        yield (
            "source.patch_size",
            f"the stem makes one vector per {stem.stride} pixels; give patch_size={stem.stride}",
        )
    scale = getattr(getattr(spec.source, "positions", None), "scale", None)
    if isinstance(spec.source, Patches) and scale == "unit":
        yield "source.positions.scale", "'unit' is for ResNet sources; use 'grid' with Patches"
    temperature = getattr(getattr(spec.source, "positions", None), "temperature", 10_000)
    if isinstance(spec.source, Patches) and temperature != 10_000:
        yield (
            "source.positions.temperature",
            "positions of Patches have temperature 10000, as in MAE; use 10000",
        )
    if isinstance(spec.source, ResNet) and scale == "grid":
        yield (
            "source.positions.scale",
            "'grid' is for Patches; use 'unit' with ResNet, whose images may be padded",
        )
    if (
        isinstance(spec.source, Patches)
        and isinstance(spec.source.positions, LearnedPositions)
        and spec.source.positions.offset
    ):
        yield "source.positions.offset", "the position table of Patches has no unused rows; use 0"
    if isinstance(spec.source, Patches) and isinstance(spec.source.positions, LearnedPositions2D):
        side = spec.source.image_size // spec.source.patch_size
        if side > spec.source.positions.count:
            yield (
                "source.positions.count",
                f"{spec.source.positions.count} is less than the {side} rows and columns of "
                f"patches; give {side}",
            )
    if (
        isinstance(spec.source, Patches)
        and isinstance(spec.source.positions, LearnedPositions)
        and spec.source.positions.count != spec.grid_cells + spec.extra_tokens
    ):
        yield (
            "source.positions.count",
            f"{spec.source.positions.count} is not the number of patches and extra tokens; give "
            f"{spec.grid_cells + spec.extra_tokens}",
        )


def check_branches(
    path: str, block: Block | ParallelBlock, spec: SpecWithHead
) -> Iterator[Problem]:
    if not isinstance(block.attention.inner, Attention):
        yield f"{path}.attention.inner", "must be an Attention"
    if isinstance(block.feedforward.inner, Attention):
        *others, last = (kind.__name__ for kind in members(FeedForwardSpec))
        yield f"{path}.feedforward.inner", f"must be {', '.join(others)} or {last}"
    yield from block.feedforward.inner.check(f"{path}.feedforward.inner")
    if isinstance(block, ParallelBlock):
        for name in ("attention", "feedforward"):
            branch = getattr(block, name)
            if branch.after is not None or branch.residual_scale != 1:
                yield (
                    f"{path}.{name}",
                    "parallel branches share one residual sum; give after=None and "
                    "residual_scale=1, and place norms with before or out",
                )
    crosses = isinstance(block, Block) and block.cross_attention is not None
    needs_cross_attention = path.startswith("decoder") and spec.encoder is not None
    if crosses != needs_cross_attention:
        yield (
            f"{path}.cross_attention",
            "is missing: a decoder block after an encoder needs one; give a Branch"
            if needs_cross_attention
            else "needs an encoder and a block of the decoder; set it to None",
        )
    if isinstance(block, Block) and block.cross_attention is not None:
        inner = block.cross_attention.inner
        if (
            not isinstance(inner, Attention)
            or inner.pattern != FullAttention()
            or inner.rope
            or inner.position_bias
        ):
            yield (
                f"{path}.cross_attention.inner",
                "must be an Attention with pattern=FullAttention(), rope=None and "
                "position_bias=None",
            )


def check_routers(blocks: Iterable[PlacedBlock]) -> Iterator[Problem]:
    layers = [
        (placed.path, placed.block.feedforward.inner)
        for placed in blocks
        if isinstance(placed.block.feedforward.inner, MixtureOfExperts)
    ]
    for path, layer in layers:
        for name in ("load_balance_weight", "router_z_weight"):
            if getattr(layer, name) != (first := getattr(layers[0][1], name)):
                yield (
                    f"{path}.feedforward.inner.{name}",
                    f"differs from {first} in {layers[0][0]}; give all mixtures of a model the "
                    "same value",
                )
                return


def check_attention(path: str, a: Attention, width: int, spec: SpecWithHead) -> Iterator[Problem]:
    if a.head_dim is None and width % a.heads:
        yield (
            f"{path}.heads",
            f"{a.heads} does not divide the width {width}; choose a divisor or give head_dim",
        )
    if a.kv_heads is not None and a.heads % a.kv_heads:
        yield (
            f"{path}.kv_heads",
            f"{a.kv_heads} does not divide the {a.heads} heads; choose a divisor",
        )
    if a.rope is not None:
        turned = a.rope.fraction * (a.head_dim or width // a.heads)
        if turned < 2 or int(turned) % 2:
            yield (
                f"{path}.rope.fraction",
                f"rotates {turned:g} dimensions of a head; choose a fraction that gives an even "
                "number of at least 2",
            )
    yield from a.pattern.check(f"{path}.pattern", spec.source)
    yield from check_query_key_positions(path, a, spec)
    if not a.pattern.takes_positions and (a.rope or a.position_bias):
        name = type(a.pattern).__name__
        yield f"{path}.pattern", f"{name} takes no positions; set rope and position_bias to None"
    if (
        isinstance(spec.encoder, Pyramid)
        and path.startswith("encoder")
        and (not a.pattern.on_grid or a.rope or a.position_bias)
    ):
        yield (
            f"{path}.pattern",
            "must be ShiftedWindows or FullAttention in a Pyramid, with rope=None and "
            "position_bias=None",
        )
    reads_tokens = not isinstance(
        spec.target if spec.encoder else spec.source,
        AnchorQueries | ObjectQueries | Patches | ResNet,
    )
    decodes = path.startswith("decoder") and ".attention." in path and reads_tokens
    if decodes and a.pattern.looks_ahead:
        yield (
            f"{path}.pattern",
            "a decoder of tokens must not attend to later tokens; use CausalAttention() or "
            "SlidingWindow(before=…, after=0)",
        )
    if a.position_bias is not None:
        yield from a.position_bias.check(f"{path}.position_bias")


def has_positions_at(spec: SpecWithHead, stack: str) -> bool:
    """Return whether image cells have positions at the attention of a stack."""
    return (
        isinstance(spec.source, ResNet)
        and spec.source.positions is not None
        and spec.source.positions_at in ("attention", f"{stack}-attention")
    )


def check_query_key_positions(path: str, a: Attention, spec: SpecWithHead) -> Iterator[Problem]:
    """Yield a problem if separate maps of positions have no positions to map."""
    name = f"{path}.query_key_positions"
    stack = path.split(".")[0]
    layout = a.query_key_positions
    if layout == "added":
        return
    queries = isinstance(spec.target, AnchorQueries) or (
        isinstance(spec.target, ObjectQueries) and spec.target.at == "attention"
    )
    if "cross_attention" in path:
        if layout == "projected" or not isinstance(spec.target, AnchorQueries):
            yield (
                name,
                f"{layout!r} needs anchors in cross-attention; give target=AnchorQueries(…) or use "
                "'added'",
            )
        elif not has_positions_at(spec, "decoder"):
            yield name, "image cells have no positions at the decoder's attention; use 'added'"
    elif layout != "projected":
        yield name, f"{layout!r} is for cross-attention; use 'projected' or 'added'"
    elif not (has_positions_at(spec, stack) if stack == "encoder" else queries):
        yield name, f"the {stack} has no positions at its attention; use 'added'"
    if not isinstance(a.pattern, FullAttention):
        yield name, f"{type(a.pattern).__name__} supports only 'added'"


def check_image_positions(spec: SpecWithHead) -> Iterator[Problem]:
    if spec.decoder is None and getattr(spec.source, "positions_at", "") == "decoder-attention":
        yield "source.positions_at", "the model has no decoder; use 'attention' or 'input'"
    if isinstance(spec.decoder, Stack) and spec.decoder.position_scale != "none":
        yield "decoder.position_scale", "a decoder's positions are not scaled; use 'none'"
    scaled = isinstance(spec.encoder, Stack) and spec.encoder.position_scale != "none"
    if scaled and not has_positions_at(spec, "encoder"):
        yield "encoder.position_scale", "the encoder's attention has no positions; use 'none'"


def check_position_bias(spec: SpecWithHead) -> Iterator[Problem]:
    for name, stack in (
        ("encoder", spec.encoder),
        ("decoder", spec.decoder),
        ("head.stack", getattr(spec.head, "stack", None)),
    ):
        if not isinstance(stack, Stack) or stack.position_bias is None:
            continue
        inners = [b.attention.inner for b in stack.blocks]
        if len({a.heads for a in inners if isinstance(a, Attention)}) > 1:
            yield (
                f"{name}.position_bias",
                "is shared by all blocks; give all blocks the same number of heads",
            )
        for a in inners:
            if isinstance(a, Attention) and not a.pattern.takes_positions:
                pattern = type(a.pattern).__name__
                yield f"{name}.position_bias", f"{pattern} takes no position bias; set it to None"
                break
        yield from stack.position_bias.check(f"{name}.position_bias")
    for path, part in (("source", spec.source), ("target", spec.target)):
        positions = getattr(part, "positions", None)
        unit = getattr(positions, "width_unit", 1)
        width = (part.embedding_dim if isinstance(part, Tokens) else None) or spec.width
        if width % unit:
            yield f"{path}.positions", f"needs a width divisible by {unit}, not {width}"


def check_layer_mix(spec: SpecWithHead) -> Iterator[Problem]:
    stack = spec.decoder or spec.encoder
    if spec.layer_mix is None or stack is None:
        return
    if isinstance(stack, Pyramid) or not spec.head.reads_layers:
        *others, last = (kind.__name__ for kind in members(Head) if kind.reads_layers)
        readers = f"{', '.join(others)} or {last}"
        yield "layer_mix", f"needs a Stack and a head that reads layers ({readers}); set it to None"
        return
    depth = len(stack.blocks)
    wrong = [i for i in spec.layer_mix.layers if not -depth - 1 <= i <= depth]
    if wrong:
        yield (
            "layer_mix.layers",
            f"layer {wrong[0]} does not exist; give 0 (the embeddings) to {depth} or -1 (the last "
            "block's output)",
        )
    elif len({i % (depth + 1) for i in spec.layer_mix.layers}) < len(spec.layer_mix.layers):
        yield "layer_mix.layers", f"{spec.layer_mix.layers} has duplicates; give each once"
