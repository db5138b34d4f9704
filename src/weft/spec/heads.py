"""Output heads: language modelling, classification, tagging, spans, detection, pixels."""

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
    """A dense layer, activation and norm before a head's output layer.

    Args:
        activation: the activation function (default: "gelu").
        norm: the norm after the activation (default: none).
        bias: whether the dense layer has a bias (default: True).
    """

    activation: Activation = "gelu"
    norm: Norm | None = None
    bias: bool = True


class Head:
    """Base of output heads. Its implementation is built with (head, spec) and called with a
    `weft.nn.layers.sequence.HiddenStates`.
    """

    reads_table: ClassVar[bool] = False  # the layer also receives the token table
    reads_layers: ClassVar[bool] = False  # supports `Spec.layer_mix`

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
        """Yield the problems of the head itself and with the model."""
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
        yield "head.labels", f"has {len(labels)} names for {outputs} classes; give one per class"


@choice
class LMHead(Head):
    """A score per token of the vocabulary.

    Args:
        tied: whether the output matrix is the input token table (default: True).
        bias: "none", "trained", or "buffer": stored but not trained (default: "none").
        transform: a transform before the output matrix (default: none).
        logit_scale: the factor of the scores (default: 1).
        softcap: c in s <- c · tanh(s / c) of the scores s (default: none).
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
                "LMHead needs a token table; use ClassifierHead, TokenClassifierHead, "
                "DetectionHead or NoHead",
            )
        elif self.tied and spec.embedding_dim != spec.width and self.transform is None:
            yield (
                "head.transform",
                f"the tied table has width {spec.embedding_dim}, the model {spec.width}; give "
                "HeadTransform() or tied=False",
            )


@choice
class ClassifierHead(Head):
    """A score per class from one vector per sequence.

    Args:
        num_labels: the number of classes.
        pooling: the vector to classify: "cls", the first token; "last", the last token; "mean";
            "tokens", a classifier per extra token, averaged (DeiT); "sequence", a mean weighted by
            a softmax of a learned score per token (Compact Transformers, arXiv:2104.05704, section
            3.2). Default: "cls".
        transform: a transform before the output layer (default: none).
        dropout: the dropout probability of the pooled vector (default: 0).
        bias: whether the output layer has a bias (default: True).
        labels: the names of the classes in order (default: none).
    """

    num_labels: PositiveInt
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
            yield "head.pooling", "the model has no extra tokens; use 'cls', 'last' or 'mean'"
        alone = self.pooling in ("cls", "tokens") and spec.decoder is not None
        if alone and not spec.queries:
            yield (
                "head.pooling",
                "the first token of a decoder attends to no other token; use 'last' or 'mean', "
                f"not {self.pooling!r}",
            )
        yield from check_labels(self.labels, self.num_labels)


@choice
class TokenClassifierHead(Head):
    """Scores per token, such as tags or replaced-token detection.

    Args:
        num_labels: the number of classes.
        transform: a transform before the output layer (default: none).
        dropout: the dropout probability of the hidden vectors (default: 0).
        labels: the names of the classes in order (default: none).
    """

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
        return f"{count_of(self.num_labels, 'score')} per token"

    def check(self, spec: SpecWithoutHead) -> Iterator[Problem]:
        return check_labels(self.labels, self.num_labels)


@choice
class SpanHead(Head):
    """A start and an end score of the answer per token (BERT, section 4.2).

    Args:
        transform: a transform before the output layer (default: none).
    """

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
    """A class and a box per query (DETR, section 3.2).

    Args:
        num_labels: the number of classes, without "no object".
        scores: "softmax" adds a class for no object; "sigmoid" scores each class independently and
            is trained with the focal loss (DAB-DETR). Default: "softmax".
        box_layers: the number of layers of the box MLP (default: 3).
        labels: the names of the classes in order (default: none).
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
                "DetectionHead needs object queries; give target=ObjectQueries(...)",
            )
        yield from check_labels(self.labels, self.num_labels)


@choice
class PixelDecoder(Head):
    """A light decoder that predicts all pixels from the visible patches and mask tokens (MAE,
    arXiv:2111.06377).

    Args:
        width: the width of the decoder.
        stack: the blocks of the decoder.
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
            yield "head", "PixelDecoder needs an encoder only; set decoder to None"
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
            yield "head.width", f"must be divisible by 4 for sinusoidal positions, not {self.width}"


@choice
class NoHead(Head):
    """The hidden vectors, and a pooled first vector if there is a transform.

    Args:
        transform: a transform of the first vector (default: none).
    """

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
