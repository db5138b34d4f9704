"""The `Spec` dataclass, which describes a whole model, and functions that change one."""

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
    """Ids of special tokens.

    Args:
        pad: the padding token (default: none).
        bos: the token at the start of a sequence (default: none).
        eos: the token, or tokens, that end generation (default: none).
        decoder_start: the first input token of a decoder after an encoder (default: none).
    """

    pad: NonNegativeInt | None = None
    bos: NonNegativeInt | None = None
    eos: NonNegativeInt | tuple[NonNegativeInt, ...] | None = None
    decoder_start: NonNegativeInt | None = None


@choice
class Spec(SpecWithHead):
    """A model: source -> encoder and/or decoder -> head. A decoder without an encoder reads
    `source`; with an encoder it reads `target`.

    The parts are checked at construction; invalid combinations raise ValueError with the path of
    the field and a fix.

    Args:
        width: the model width D, the size of every hidden vector.
        source: the model's input: tokens, image patches or the features of a ResNet.
        head: the output layer.
        encoder: the stack that encodes the source (default: none).
        decoder: the stack that decodes tokens or queries (default: none).
        target: the decoder's input in an encoder-decoder model (default: none).
        init: the distribution of the initial weights (default: `NormalInit()`).
        special_tokens: ids of padding, begin and end tokens (default: none).
        layer_mix: the layers whose outputs the head reads (default: the last stack's output).
        context_length: the trained length in tokens, for models without a position table (default:
            unknown).
    """

    width: PositiveInt
    source: Tokens | Patches | ResNet
    head: Head
    encoder: Stack | Pyramid | None = None
    decoder: Stack | None = None
    target: Tokens | SharedTokens | ObjectQueries | AnchorQueries | None = None
    init: Init = NormalInit()
    special_tokens: SpecialTokens = SpecialTokens()
    layer_mix: LayerMix | None = None
    context_length: PositiveInt | None = None

    def __post_init__(self) -> None:
        for path, problem in find_problems(self):
            raise ValueError(f"{path}: {problem}")

    def parameter_count(self) -> int:
        """Return the number of parameters, without building the model."""
        return parameter_count(self)

    def flops(
        self,
        batch: int = 1,
        length: int | None = None,
        target: int | None = None,
        visible: float = 1.0,
    ) -> int:
        """Return the FLOPs of matrix products in one forward pass.

        Args:
            batch: the number of sequences or images.
            length: tokens per source sequence (default: the spec's own length).
            target: tokens per target sequence of an encoder-decoder model (default: `length`).
            visible: the fraction of the patches that the encoder reads (masked autoencoders).
        """
        return flops(self, batch, length, target, visible)

    def to_json(self) -> str:
        """Return the spec as JSON; `weft.from_json` is the inverse."""
        return to_json(self)


def with_dropout(model: Spec, probability: float) -> Spec:
    """Return the spec with every dropout probability replaced; `drop_path` is unchanged.

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
    """Return the spec with stochastic depth on every branch; the rate increases linearly from 0 in
    the first block to `rate` in the last.

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
    """Return the spec for another image size with the same patch size. Loading weights into it
    interpolates their position grid (Dosovitskiy et al. 2020, arXiv:2010.11929, section 3.2).

    Args:
        model: the spec of an image model.
        size: rows and columns of an image in pixels.
    """
    if not isinstance(model.source, Patches):
        raise ValueError(
            "with_image_size: the source has no patches and accepts any image size; keep the spec"
        )
    source = replace(model.source, image_size=size)
    if isinstance(source.positions, LearnedPositions):
        cells = (size // source.patch_size) ** 2 + len(source.extra_tokens)
        source = replace(source, positions=replace(source.positions, count=cells))
    return replace(model, source=source)


Blocks = tuple[Block | ParallelBlock, ...]


def skip_deeper(blocks: Blocks, rate: float) -> Blocks:
    """Return the blocks with a drop-path rate that increases linearly to `rate`."""

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
    """Return the spec with these label names, unless its head already has names or another number
    of labels.
    """
    if (
        labels is None
        or getattr(spec.head, "labels", ()) is not None
        or len(labels) != getattr(spec.head, "num_labels", len(labels))
    ):
        return spec
    return replace(spec, head=replace(spec.head, labels=tuple(labels)))  # type: ignore[type-var]


def max_row_length(spec: Spec) -> int | None:
    """Return the longest row that the position tables and attention patterns allow; None if
    unlimited.
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
