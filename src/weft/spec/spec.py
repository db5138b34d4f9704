"""A whole model as one value."""

from dataclasses import replace
from itertools import accumulate
from typing import Any

from ..support.registry import choice
from ..support.values import NonNegativeInt, PositiveInt, from_plain, to_json, to_plain
from .attention import Attention
from .block import Block, LayerMix, ParallelBlock, Pyramid, Stack
from .check import find_problems
from .count import iterate_blocks, parameter_count
from .flops import flops
from .heads import Head, SpecWithHead
from .initialisation import Init, NormalInit
from .inputs import AnchorQueries, ObjectQueries, Patches, ResNet, SharedTokens, Tokens
from .positions import LearnedPositions


@choice
class SpecialTokens:
    """Ids of special tokens."""

    pad: NonNegativeInt | None = None
    bos: NonNegativeInt | None = None
    eos: NonNegativeInt | tuple[NonNegativeInt, ...] | None = None
    decoder_start: NonNegativeInt | None = None  # what the decoder reads first


@choice
class Spec(SpecWithHead):
    """source -> encoder and/or decoder -> head; a decoder alone reads the source, else the
    target.
    """

    width: PositiveInt
    source: Tokens | Patches | ResNet
    head: Head
    encoder: Stack | Pyramid | None = None
    decoder: Stack | None = None
    target: Tokens | SharedTokens | ObjectQueries | AnchorQueries | None = None
    init: Init = NormalInit()
    special_tokens: SpecialTokens = SpecialTokens()
    layer_mix: LayerMix | None = None  # what the head reads; None: the last stack's output
    context_length: PositiveInt | None = (
        None  # the length it was trained for, where no position table says it
    )

    def __post_init__(self) -> None:
        for path, problem in find_problems(self):
            raise ValueError(f"{path}: {problem}")

    def parameter_count(self) -> int:
        return parameter_count(self)

    def flops(
        self,
        batch: int = 1,
        length: int | None = None,
        target: int | None = None,
        visible: float = 1.0,
    ) -> int:
        return flops(self, batch, length, target, visible)

    def to_json(self) -> str:
        return to_json(self)


def with_dropout(model: Spec, probability: float) -> Spec:
    """Return the spec with every dropout probability replaced; `drop_path` is not changed.

    Args:
        model: the spec to change.
        probability: the new dropout probability of the input, every attention and every branch.
    """

    def change(plain: Any) -> Any:
        if isinstance(plain, dict):
            return {
                name: probability if name == "dropout" else change(part)
                for name, part in plain.items()
            }
        return [change(part) for part in plain] if isinstance(plain, list) else plain

    changed: Spec = from_plain(change(to_plain(model)))
    return changed


def with_drop_path(model: Spec, rate: float) -> Spec:
    """Return the spec with stochastic depth on every branch, from 0 in the first block linearly to
    `rate` in the last.

    Args:
        model: the spec to change.
        rate: the probability that the last block is skipped (Huang et al. 2016, arXiv:1603.09382,
            section 4).
    """
    encoder = model.encoder
    if isinstance(encoder, Pyramid):
        blocks = skip_deeper(sum(encoder.stages, ()), rate)
        ends = list(accumulate(map(len, encoder.stages)))
        stages = tuple(blocks[e - len(s) : e] for e, s in zip(ends, encoder.stages, strict=True))
        return replace(model, encoder=replace(encoder, stages=stages))
    return replace(
        model,
        encoder=encoder and replace(encoder, blocks=skip_deeper(encoder.blocks, rate)),
        decoder=model.decoder
        and replace(model.decoder, blocks=skip_deeper(model.decoder.blocks, rate)),
    )


def with_image_size(model: Spec, size: int) -> Spec:
    """Return the spec for images of another size: more or fewer patches of the same size. Weights
    are loaded into it with their grid of positions stretched (Dosovitskiy et al. 2020,
    arXiv:2010.11929, section 3.2).

    Args:
        model: the spec of an image model.
        size: rows and columns of an image in pixels.
    """
    if not isinstance(model.source, Patches):
        raise ValueError("with_image_size: the model has no patches; images of any size fit")
    source = replace(model.source, image_size=size)
    if isinstance(source.positions, LearnedPositions):
        cells = (size // source.patch_size) ** 2 + len(source.extra_tokens)
        source = replace(source, positions=replace(source.positions, count=cells))
    return replace(model, source=source)


Blocks = tuple[Block | ParallelBlock, ...]


def skip_deeper(blocks: Blocks, rate: float) -> Blocks:
    """The blocks, with the drop path of every branch."""

    def skipped(block: Block | ParallelBlock, rate: float) -> Block | ParallelBlock:
        attention = replace(block.attention, drop_path=rate)
        feedforward = replace(block.feedforward, drop_path=rate)
        changed = replace(block, attention=attention, feedforward=feedforward)
        if isinstance(changed, Block) and changed.cross_attention is not None:
            cross = replace(changed.cross_attention, drop_path=rate)
            return replace(changed, cross_attention=cross)
        return changed

    last = max(len(blocks) - 1, 1)
    return tuple(skipped(block, rate * (i / last)) for i, block in enumerate(blocks))


def with_label_names(spec: Spec, labels: tuple[str, ...] | list[str] | None) -> Spec:
    """Return the spec with these label names, if its head has none yet."""
    if (
        labels is None
        or getattr(spec.head, "labels", ()) is not None
        or len(labels) != getattr(spec.head, "num_labels", len(labels))
    ):
        return spec
    return replace(spec, head=replace(spec.head, labels=tuple(labels)))  # type: ignore[type-var]


def max_row_length(spec: Spec) -> int | None:
    """Return the longest row that learned positions and Linformer's projections allow; None without
    either.
    """
    tables = [
        t.positions for t in (spec.source, spec.target) if isinstance(t, Tokens | SharedTokens)
    ]
    patterns = [
        placed.block.attention.inner.pattern
        for placed in iterate_blocks(spec)
        if isinstance(placed.block.attention.inner, Attention)
    ]
    limits = (part.max_length for part in (*tables, *patterns) if part is not None)
    return min((limit for limit in limits if limit is not None), default=None)
