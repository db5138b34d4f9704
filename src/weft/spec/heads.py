"""What a model gives: heads."""

from collections.abc import Iterator
from typing import ClassVar, Literal

from ..support.console import count_of
from ..support.registry import choice, implements
from ..support.value_tree import format_inline
from ..support.values import FiniteFloat, PositiveFloat, PositiveInt, Probability
from .block import SpecWithoutHead, Stack, shared_bias_shapes
from .feedforward import Activation
from .norms import Norm, norm_shapes
from .parts import Problem, Shapes, linear_flops, linear_shapes, measured_shapes, with_prefix


@choice
class HeadTransform:
    """Dense, activation, norm: what stands before some heads."""

    activation: Activation = "gelu"
    norm: Norm | None = None
    bias: bool = True


class Head:
    """Base of what a model gives. Built with (head, spec), called with a
    `layers.sequence.HiddenStates`.
    """

    reads_table: ClassVar[bool] = False  # the layer is also given the token table
    reads_layers: ClassVar[bool] = False  # goes with `Spec.layer_mix`

    def shapes(self, spec: SpecWithoutHead) -> Shapes:
        """Yield name and shape of every parameter."""
        return measured_shapes(self, spec)

    def flops(self, spec: SpecWithoutHead, tokens: int) -> int:
        """Return the FLOPs of one sequence of `tokens` vectors."""
        return linear_flops(self.shapes(spec), tokens)

    def describe(self) -> str:
        """Return the head in a few words."""
        return format_inline(self)

    def check(self, spec: SpecWithoutHead) -> Iterator[Problem]:
        """Yield what does not fit together in it or with the model."""
        return iter(())


class SpecWithHead(SpecWithoutHead):
    """The parts of a `Spec`. Its checks and counts take this, since `Spec` itself calls them."""

    head: Head


def transform_shapes(transform: "HeadTransform | None", width: int, out: int) -> Shapes:
    if transform is not None:
        yield from linear_shapes("transform.dense", width, out, transform.bias)
        yield from norm_shapes("transform.norm", transform.norm, out)


def check_labels(labels: tuple[str, ...] | None, outputs: int) -> Iterator[Problem]:
    if labels is not None and len(labels) != outputs:
        yield "head.labels", f"{len(labels)} names for {outputs} outputs; give one a class"


@choice
class LMHead(Head):
    """A score per token of the vocabulary; tied: the rows of the input table. With a `softcap` c, c
    · tanh(score / c).
    """

    tied: bool = True
    bias: Literal["none", "trained", "buffer"] = "none"
    transform: HeadTransform | None = None
    logit_scale: FiniteFloat = 1.0
    softcap: PositiveFloat | None = None
    reads_table = True

    def shapes(self, spec: SpecWithoutHead) -> Shapes:
        inner = spec.embedding_dim if self.transform else spec.head_input_width
        yield from transform_shapes(self.transform, spec.head_input_width, inner)
        if not self.tied:
            yield "out.weight", (spec.vocab_size, inner)
        if self.bias == "trained":
            yield "bias", (spec.vocab_size,)

    def flops(self, spec: SpecWithoutHead, tokens: int) -> int:
        tied = 2 * tokens * spec.vocab_size * spec.embedding_dim if self.tied else 0
        return linear_flops(self.shapes(spec), tokens) + tied

    def describe(self) -> str:
        table = "tied to the token table" if self.tied else "a table of its own"
        capped = f", logits capped at {self.softcap:g}" if self.softcap else ""
        return f"vocabulary, {table}{capped}"

    def check(self, spec: SpecWithoutHead) -> Iterator[Problem]:
        if spec.token_table is None:
            yield (
                "head",
                "LMHead needs a token table; give ClassifierHead, TokenClassifierHead, "
                "DetectionHead or NoHead",
            )
        elif self.tied and spec.embedding_dim != spec.width and self.transform is None:
            yield (
                "head.transform",
                "the tied table is narrower than the model; give a HeadTransform to its width",
            )


@choice
class ClassifierHead(Head):
    """A score per class from one vector a sequence."""

    num_labels: PositiveInt
    # tokens: a classifier per extra token, averaged (DeiT); sequence: a mean whose weights are a
    # softmax of a learned score per token (Compact Transformers, arXiv:2104.05704, section 3.2)
    pooling: Literal["cls", "last", "mean", "tokens", "sequence"] = "cls"
    transform: HeadTransform | None = None
    dropout: Probability = 0.0
    bias: bool = True
    labels: tuple[str, ...] | None = None
    reads_layers = True

    def shapes(self, spec: SpecWithoutHead) -> Shapes:
        width = spec.head_input_width
        if self.pooling == "sequence":
            yield from linear_shapes("score", width, 1)
        yield from transform_shapes(self.transform, width, width)
        names = (
            [f"out.{i}" for i in range(spec.extra_tokens)] if self.pooling == "tokens" else ["out"]
        )
        for name in names:
            yield from linear_shapes(name, width, self.num_labels, self.bias)

    def flops(self, spec: SpecWithoutHead, tokens: int) -> int:
        once = linear_flops(self.shapes(spec), 1)
        again = linear_flops(self.shapes(spec), 1, "transform.dense")
        if self.pooling == "sequence":  # a score per token, and the weighted sum of the tokens
            return once + linear_flops(self.shapes(spec), 2 * tokens - 1, "score")
        return once + (spec.extra_tokens - 1) * again if self.pooling == "tokens" else once

    def describe(self) -> str:
        where = {
            "tokens": "each extra token",
            "mean": "the mean",
            "sequence": "a weighted mean",
        }.get(self.pooling, f"the {self.pooling} token")
        return f"{count_of(self.num_labels, 'class')} from {where}"

    def check(self, spec: SpecWithoutHead) -> Iterator[Problem]:
        if self.pooling == "tokens" and not spec.extra_tokens:
            yield "head.pooling", "there are no extra tokens to read; use 'cls', 'last' or 'mean'"
        alone = self.pooling in ("cls", "tokens") and spec.decoder is not None
        if alone and not spec.queries:
            yield (
                "head.pooling",
                f"{self.pooling!r} of a decoder sees no other token; use 'last' or 'mean'",
            )
        yield from check_labels(self.labels, self.num_labels)


@choice
class TokenClassifierHead(Head):
    """Scores at every position: a tag each, or replaced or not."""

    num_labels: PositiveInt
    transform: HeadTransform | None = None
    dropout: Probability = 0.0
    labels: tuple[str, ...] | None = None
    reads_layers = True

    def shapes(self, spec: SpecWithoutHead) -> Shapes:
        width = spec.head_input_width
        yield from transform_shapes(self.transform, width, width)
        yield from linear_shapes("out", width, self.num_labels)

    def describe(self) -> str:
        return f"{count_of(self.num_labels, 'score')} a token"

    def check(self, spec: SpecWithoutHead) -> Iterator[Problem]:
        return check_labels(self.labels, self.num_labels)


@choice
class SpanHead(Head):
    """How well an answer starts and ends at each position (BERT, section 4.2)."""

    transform: HeadTransform | None = None
    reads_layers = True

    def shapes(self, spec: SpecWithoutHead) -> Shapes:
        width = spec.head_input_width
        yield from transform_shapes(self.transform, width, width)
        yield from linear_shapes("out", width, 2)

    def describe(self) -> str:
        return "start and end of an answer"


@choice
class DetectionHead(Head):
    """A class and a box per query (DETR, section 3.2). `scores`: "softmax", where one class more
    means no object; or "sigmoid", each class by itself, trained with the focal loss (DAB-DETR).
    """

    num_labels: PositiveInt
    scores: Literal["softmax", "sigmoid"] = "softmax"
    box_layers: PositiveInt = 3
    labels: tuple[str, ...] | None = None

    @property
    def num_scores(self) -> int:
        """The scores of a query: softmax has one more, for no object."""
        return self.num_labels + 1 if self.scores == "softmax" else self.num_labels

    def shapes(self, spec: SpecWithoutHead) -> Shapes:
        width = spec.head_input_width
        yield from linear_shapes("classes", width, self.num_scores)
        for i in range(self.box_layers):
            yield from linear_shapes(f"box.{i}", width, width if i < self.box_layers - 1 else 4)

    def describe(self) -> str:
        return f"{self.num_labels:,} classes and a box"

    def check(self, spec: SpecWithoutHead) -> Iterator[Problem]:
        if not spec.queries:
            yield (
                "head",
                "DetectionHead are read from object queries; give target=ObjectQueries(...)",
            )
        yield from check_labels(self.labels, self.num_labels)


@choice
class PixelDecoder(Head):
    """Mask tokens join the visible patches, a light decoder of its own width predicts all pixels
    (MAE, arXiv:2111.06377).
    """

    width: PositiveInt
    stack: Stack

    def shapes(self, spec: SpecWithoutHead) -> Shapes:
        cells = spec.grid_cells
        pixels = spec.patch_pixels
        yield from linear_shapes("narrow", spec.width, self.width)
        yield "mask", (self.width,)
        yield "positions.weight", (cells + spec.extra_tokens, self.width)
        yield from with_prefix("stack", shared_bias_shapes(self.stack))
        yield from norm_shapes("stack.norm", self.stack.norm, self.width)
        yield from linear_shapes("out", self.width, pixels)

    def flops(self, spec: SpecWithoutHead, tokens: int) -> int:
        places = spec.grid_cells + spec.extra_tokens
        return linear_flops(self.shapes(spec), tokens, "narrow") + linear_flops(
            self.shapes(spec), places, "out"
        )

    def describe(self) -> str:
        return "pixels of hidden patches"

    def check(self, spec: SpecWithoutHead) -> Iterator[Problem]:
        if spec.decoder is not None:
            yield "head", "PixelDecoder read an encoder; leave the decoder None"
        if not (spec.grid_cells and isinstance(spec.encoder, Stack) and spec.extra_tokens):
            yield (
                "head",
                "PixelDecoder are rebuilt from patches behind a class token; give "
                "source=Patches(...) and an encoder",
            )
        if getattr(spec.source, "stem", None) is not None:
            yield (
                "head",
                "a stem mixes neighbouring patches, so that hidden ones are seen; use stem=None",
            )
        if self.width % 4:
            yield "head.width", f"the sine positions need a width that 4 divides, not {self.width}"


@choice
class NoHead(Head):
    """The vectors themselves, and one pooled from the first where there is a transform."""

    transform: HeadTransform | None = None
    reads_layers = True

    def shapes(self, spec: SpecWithoutHead) -> Shapes:
        return transform_shapes(self.transform, spec.head_input_width, spec.head_input_width)

    def flops(self, spec: SpecWithoutHead, tokens: int) -> int:
        return linear_flops(self.shapes(spec), 1)

    def describe(self) -> str:
        return "the vectors"


implements(LMHead, "weft.nn.heads:LMHeadLayer")
implements(ClassifierHead, "weft.nn.heads:ClassifierHeadLayer")
implements(TokenClassifierHead, "weft.nn.heads:TokenClassifierHeadLayer")
implements(SpanHead, "weft.nn.heads:TokenClassifierHeadLayer")
implements(DetectionHead, "weft.nn.heads:DetectionHeadLayer")
implements(PixelDecoder, "weft.nn.heads:PixelDecoderLayer")
implements(NoHead, "weft.nn.heads:NoHeadLayer")
