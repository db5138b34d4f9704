"""Residual branches, blocks and stacks, up to a model without its head."""

from typing import Annotated, Any, Literal

from pydantic import Field

from ..support.registry import choice, implements, resolve
from ..support.values import PositiveFloat, PositiveInt, Probability
from .attention import Attention
from .inputs import AnchorQueries, ObjectQueries, Patches, ResNet, SharedTokens, Tokens
from .norms import LayerNorm, Norm, norm_shapes
from .parts import Inner, Shapes, linear_shapes, measured_shapes, with_prefix
from .positions import PositionBias


@choice
class LayerScale:
    """A learned gain per channel on a branch's output (Touvron et al. 2021, arXiv:2103.17239,
    section 2).

    Args:
        initial: the initial gain (default: 1e-5).
    """

    initial: PositiveFloat = 1e-5


@choice
class Branch:
    """One residual branch: x <- after(x * residual_scale + drop(layer_scale *
    out(inner(before(x))))).

    Args:
        inner: the branch's function: `Attention` or a `FeedForwardSpec`.
        before: the norm of the branch's input, as in pre-norm models (default: none).
        out: the norm of the branch's output (default: none).
        layer_scale: a learned gain per channel on the output (default: none).
        after: the norm of the residual sum, as in post-norm models (default: none).
        residual_scale: the factor of x in the sum (DeepNorm's alpha; default: 1).
        init_gain: the factor of the initial weights of value, out and feed-forward maps (DeepNorm's
            beta; default: 1).
        dropout: the dropout probability of the output (default: 0).
        drop_path: the probability that the branch is skipped: stochastic depth (Huang et al. 2016,
            arXiv:1603.09382; default: 0).
    """

    inner: Inner
    before: Norm | None = None
    out: Norm | None = None
    layer_scale: LayerScale | None = None
    after: Norm | None = None
    residual_scale: PositiveFloat = 1.0
    init_gain: PositiveFloat = 1.0
    dropout: Probability = 0.0
    drop_path: Probability = 0.0


def pre_norm(norm: Norm, inner: Inner, **more: Any) -> Branch:
    """Return a branch with a norm on its input.

    Args:
        norm: the norm.
        inner: `Attention` or a `FeedForwardSpec`.
        more: further fields of `Branch`.
    """
    return Branch(before=norm, inner=inner, **more)


def post_norm(norm: Norm, inner: Inner, **more: Any) -> Branch:
    """Return a branch with a norm on the residual sum.

    Args:
        norm: the norm.
        inner: `Attention` or a `FeedForwardSpec`.
        more: further fields of `Branch`.
    """
    return Branch(inner=inner, after=norm, **more)


def sandwich_norm(norm: Norm, inner: Inner, **more: Any) -> Branch:
    """Return a branch with a norm on its input and on its output.

    Args:
        norm: both norms.
        inner: `Attention` or a `FeedForwardSpec`.
        more: further fields of `Branch`.
    """
    return Branch(before=norm, inner=inner, out=norm, **more)


def deepnorm_branch(norm: Norm, inner: Inner, scales: tuple[float, float], **more: Any) -> Branch:
    """Return a post-norm branch with DeepNorm's scales.

    Args:
        norm: the norm of the residual sum.
        inner: `Attention` or a `FeedForwardSpec`.
        scales: alpha and beta, as `deepnorm_scales` returns them.
        more: further fields of `Branch`.
    """
    return Branch(inner=inner, after=norm, residual_scale=scales[0], init_gain=scales[1], **more)


def deepnorm_scales(
    part: Literal["encoder", "decoder"], encoder: int = 0, decoder: int = 0
) -> tuple[float, float]:
    """Return DeepNorm's alpha and beta (Wang et al. 2022, arXiv:2203.00555, table 1).

    Args:
        part: the stack to scale, "encoder" or "decoder".
        encoder: the number of encoder blocks; 0 without an encoder.
        decoder: the number of decoder blocks; 0 without a decoder.
    """
    depth = encoder if part == "encoder" else decoder
    if part not in ("encoder", "decoder") or depth < 1:
        raise ValueError(
            f"deepnorm_scales({part!r}, encoder={encoder}, decoder={decoder}): give 'encoder' or "
            "'decoder' as part and a depth of at least 1 for it"
        )
    if not (encoder and decoder):
        return (2 * depth) ** 0.25, (8 * depth) ** -0.25
    if part == "encoder":
        return 0.81 * (encoder**4 * decoder) ** 0.0625, 0.87 * (encoder**4 * decoder) ** -0.0625
    return (3 * decoder) ** 0.25, (12 * decoder) ** -0.25


@choice
class Block:
    """Residual branches in sequence: attention, cross-attention if any, feed-forward.

    Args:
        attention: the self-attention branch.
        feedforward: the feed-forward branch.
        cross_attention: the branch that attends to the encoder's output (default: none).
    """

    attention: Branch
    feedforward: Branch
    cross_attention: Branch | None = None


@choice
class ParallelBlock:
    """Attention and feed-forward branches that read the same x and are added to it together (GPT-J;
    GPT-NeoX, arXiv:2204.06745, section 2.1).

    Args:
        attention: the self-attention branch.
        feedforward: the feed-forward branch.
    """

    attention: Branch
    feedforward: Branch


@choice
class DLCL:
    """A learned combination of all earlier layers (Wang et al. 2019, arXiv:1906.01787, section
    3.2).

    Block l reads sum over k < l of w[l, k] · norm_k(y_k), where y_0 are the embeddings and y_k is
    the output of block k. The last combination is the output of the stack. Initial weights are
    equal.

    Args:
        norm: the norm of every layer's output (default: `LayerNorm()`); None for post-norm blocks,
            whose outputs are normalised.
    """

    norm: Norm | None = LayerNorm()


@choice
class Stack:
    """A sequence of blocks.

    The type is open: users may subclass it, with or without blocks (examples/bahdanau.py). Its
    implementation is built with (spec, width, layers), is called like `weft.nn.stack.StackLayer`
    and has the attributes `in_order` and `position_bias`.

    Args:
        blocks: the blocks in order.
        norm: the norm after the last block (default: none).
        position_bias: a bias on the attention scores that all blocks share (default: none).
        position_scale: "mlp" scales positions at queries and keys by a map of the hidden vectors,
            shared by all blocks, as in DAB-DETR's encoder (default: "none").
        layer_combination: a combination of earlier layers as each block's input (default: the
            previous block's output).
    """

    blocks: tuple[Block | ParallelBlock, ...]
    norm: Norm | None = None
    position_bias: PositionBias | None = None
    position_scale: Literal["none", "mlp"] = "none"
    layer_combination: DLCL | None = None

    def shapes(self, width: int) -> Shapes:
        """Yield name and shape of every parameter outside the blocks; a user-defined stack is
        measured.
        """
        if type(self) is not Stack:
            rows = measured_shapes(self, width, ())
            yield from (row for row in rows if not row[0].startswith("blocks."))
            return
        yield from shared_bias_shapes(self)
        yield from position_scale_shapes(self, width)
        yield from combination_shapes(self, width)
        yield from norm_shapes("norm", self.norm, width)

    def flops(self, width: int, tokens: int, memory: int) -> int:
        """Return the FLOPs of one sequence outside the blocks; a user-defined stack is measured.

        Args:
            width: the model width D.
            tokens: the number of tokens.
            memory: the number of encoder outputs that a decoder reads, else 0.
        """
        if type(self) is not Stack:
            measured: int = resolve("weft.nn.layers.measure:stack_flops")(
                self, width, tokens, memory
            )
            return measured
        return 4 * len(self.blocks) * tokens * width**2 if self.position_scale == "mlp" else 0


implements(Stack, "weft.nn.stack:StackLayer")


@choice
class Pyramid:
    """Stages on an image grid; between stages, 2×2 neighbours merge and the width doubles (Swin).

    Args:
        stages: the blocks of each stage.
        norm: the norm after the last stage (default: none).
        merge_norm: the norm of merged neighbours (default: `LayerNorm()`).
    """

    stages: tuple[tuple[Block | ParallelBlock, ...], ...]
    norm: Norm | None = None
    merge_norm: Norm = LayerNorm()


@choice
class LayerMix:
    """The layers of a stack whose outputs a head reads (BERT, arXiv:1810.04805, section 5.3 and
    table 7).

    Args:
        layers: layer numbers as in transformers' hidden_states: 0 is the embeddings, -1 the last
            layer.
        combine: "concat", "sum" or "weighted", a trained softmax over the layers (default:
            "concat").
    """

    layers: Annotated[tuple[int, ...], Field(min_length=1)]
    combine: Literal["concat", "sum", "weighted"] = "concat"


def position_scale_shapes(stack: Stack, width: int) -> Shapes:
    """Yield the parameters of the MLP that scales positions at queries and keys."""
    for i in range(2) if stack.position_scale == "mlp" else ():
        yield from linear_shapes(f"position_scale.{i}", width, width)


def combination_shapes(stack: Stack, width: int) -> Shapes:
    """Yield the weights of earlier layers and the parameters of their norms."""
    if stack.layer_combination is None:
        return
    for k in range(len(stack.blocks) + 1):
        yield f"layer_combination.weights.{k}", (k + 1,)
        yield from norm_shapes(f"layer_combination.norms.{k}", stack.layer_combination.norm, width)


def shared_bias_shapes(stack: Stack) -> Shapes:
    """Yield the parameters of the position bias that all blocks share."""
    inner = stack.blocks[0].attention.inner
    if stack.position_bias is not None and isinstance(inner, Attention):
        yield from with_prefix("position_bias", stack.position_bias.shapes(inner.heads))


class SpecWithoutHead:
    """The parts of a `Spec` except its head, and what follows from them."""

    width: PositiveInt
    source: Tokens | Patches | ResNet
    encoder: Stack | Pyramid | None
    decoder: Stack | None
    target: Tokens | SharedTokens | ObjectQueries | AnchorQueries | None
    layer_mix: LayerMix | None

    @property
    def head_input_width(self) -> int:
        """Width of the head's input."""
        if self.layer_mix is not None and self.layer_mix.combine == "concat":
            return self.width * len(self.layer_mix.layers)
        if isinstance(self.encoder, Pyramid):
            return self.width << len(self.encoder.stages) - 1
        return self.width

    @property
    def token_table(self) -> Tokens | None:
        """The token table of the decoder, or of the encoder in a model without a decoder; None if
        that stack reads images or queries.
        """
        table = self.target if isinstance(self.target, Tokens) else self.source
        return table if isinstance(table, Tokens) and not self.queries else None

    @property
    def embedding_dim(self) -> int:
        """Width of the token table, or of the model if there is no table."""
        table = self.target if isinstance(self.target, Tokens) else self.source
        return (table.embedding_dim if isinstance(table, Tokens) else None) or self.width

    @property
    def vocab_size(self) -> int:
        """Number of rows of the token table."""
        table = self.target if isinstance(self.target, Tokens) else self.source
        assert isinstance(table, Tokens)
        return table.vocab_size

    @property
    def queries(self) -> int:
        """Number of object queries; 0 if the decoder reads tokens."""
        return self.target.count if isinstance(self.target, ObjectQueries | AnchorQueries) else 0

    @property
    def extra_tokens(self) -> int:
        """Number of tokens in front of the patches."""
        return len(self.source.extra_tokens) if isinstance(self.source, Patches) else 0

    @property
    def grid_cells(self) -> int:
        """Number of patches per image; 0 for other inputs."""
        s = self.source
        return (s.image_size // s.patch_size) ** 2 if isinstance(s, Patches) else 0

    @property
    def patch_pixels(self) -> int:
        """Number of values per patch; 0 for other inputs."""
        return (
            self.source.channels * self.source.patch_size**2
            if isinstance(self.source, Patches)
            else 0
        )
