"""Branches, blocks, stacks: the one residual equation and what is built of it, up to a model
without its head.
"""

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
    """A learned gain per channel on a branch's output, small at first (Touvron et al. 2021,
    arXiv:2103.17239, section 2).
    """

    initial: PositiveFloat = 1e-5


@choice
class Branch:
    """One residual branch: x <- after(x * residual_scale + drop(layer_scale *
    out(inner(before(x))))).
    """

    inner: Inner
    before: Norm | None = None
    out: Norm | None = None
    layer_scale: LayerScale | None = None
    after: Norm | None = None
    residual_scale: PositiveFloat = 1.0
    init_gain: PositiveFloat = (
        1.0  # on the initial weights of value, out and feed-forward (DeepNorm's beta)
    )
    dropout: Probability = 0.0
    drop_path: Probability = 0.0  # stochastic depth (Huang et al. 2016, arXiv:1603.09382)


def pre_norm(norm: Norm, inner: Inner, **more: Any) -> Branch:
    return Branch(before=norm, inner=inner, **more)


def post_norm(norm: Norm, inner: Inner, **more: Any) -> Branch:
    return Branch(inner=inner, after=norm, **more)


def sandwich_norm(norm: Norm, inner: Inner, **more: Any) -> Branch:
    return Branch(before=norm, inner=inner, out=norm, **more)


def deepnorm_branch(norm: Norm, inner: Inner, scales: tuple[float, float], **more: Any) -> Branch:
    return Branch(inner=inner, after=norm, residual_scale=scales[0], init_gain=scales[1], **more)


def deepnorm_scales(
    part: Literal["encoder", "decoder"], encoder: int = 0, decoder: int = 0
) -> tuple[float, float]:
    """DeepNorm's alpha and beta from the depths (Wang et al. 2022, arXiv:2203.00555, table 1)."""
    depth = encoder if part == "encoder" else decoder
    if part not in ("encoder", "decoder") or depth < 1:
        raise ValueError(
            f"deepnorm({part!r}, encoder={encoder}, decoder={decoder}): name 'encoder' or "
            "'decoder' and give its depth"
        )
    if not (encoder and decoder):
        return (2 * depth) ** 0.25, (8 * depth) ** -0.25
    if part == "encoder":
        return 0.81 * (encoder**4 * decoder) ** 0.0625, 0.87 * (encoder**4 * decoder) ** -0.0625
    return (3 * decoder) ** 0.25, (12 * decoder) ** -0.25


@choice
class Block:
    """Branches one after the other."""

    attention: Branch
    feedforward: Branch
    cross_attention: Branch | None = None  # looks at the encoder's output


@choice
class ParallelBlock:
    """Both branches read the same x and add to it (GPT-J; GPT-NeoX, arXiv:2204.06745, section
    2.1).
    """

    attention: Branch
    feedforward: Branch


@choice
class DLCL:
    """A learned combination of all earlier layers: block l reads sum over k < l of w[l, k] ·
    norm_k(y_k), where y_0 are the embeddings and y_k is the output of block k; what the blocks'
    outputs give together is the output of the stack. Weights start as a mean (Wang et al. 2019,
    arXiv:1906.01787, section 3.2).
    """

    norm: Norm | None = LayerNorm()  # None: as for post-norm blocks, whose outputs have one


@choice
class Stack:
    """Blocks in order; a depth pattern is a comprehension. `position_scale`: "mlp" scales positions
    at queries and keys by a map of the vectors, the same in all blocks (DAB-DETR's encoder).
    `layer_combination`: what a block reads, where not the output of the one before.

    The type is open: a subclass in a user's file, such as examples/bahdanau.py, is a stack of
    something else and may have no blocks. What implements it is built with (spec, width, layers),
    is called as `model.stack.StackLayer` and has `in_order` and `position_bias`.
    """

    blocks: tuple[Block | ParallelBlock, ...]
    norm: Norm | None = None
    position_bias: PositionBias | None = None
    position_scale: Literal["none", "mlp"] = "none"
    layer_combination: DLCL | None = None

    def shapes(self, width: int) -> Shapes:
        """Yield name and shape of every parameter outside the blocks; those of a user's stack are
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
        """Return the FLOPs of one sequence outside the blocks; those of a user's stack are
        measured.

        Args:
            width: of the model.
            tokens: number of tokens.
            memory: number of tokens of the encoder's output that a decoder reads, else 0.
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
    """Stages on an image grid; between two of them 2×2 neighbours merge and the width doubles
    (Swin).
    """

    stages: tuple[tuple[Block | ParallelBlock, ...], ...]
    norm: Norm | None = None
    merge_norm: Norm = LayerNorm()


@choice
class LayerMix:
    """What a head reads of a stack, where not its output: the outputs of several layers, numbered
    as transformers' hidden_states, 0 the embeddings, -1 the last (BERT, arXiv:1810.04805, section
    5.3 and table 7). `weighted`: a trained softmax over the layers.
    """

    layers: Annotated[tuple[int, ...], Field(min_length=1)]
    combine: Literal["concat", "sum", "weighted"] = "concat"


def position_scale_shapes(stack: Stack, width: int) -> Shapes:
    """Of the MLP that scales positions at queries and keys."""
    for i in range(2) if stack.position_scale == "mlp" else ():
        yield from linear_shapes(f"position_scale.{i}", width, width)


def combination_shapes(stack: Stack, width: int) -> Shapes:
    """Of the weights of earlier layers, and their norms."""
    if stack.layer_combination is None:
        return
    for k in range(len(stack.blocks) + 1):
        yield f"layer_combination.weights.{k}", (k + 1,)
        yield from norm_shapes(f"layer_combination.norms.{k}", stack.layer_combination.norm, width)


def shared_bias_shapes(stack: Stack) -> Shapes:
    """Of the position bias that all blocks of a stack share."""
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
        """Width of what the head reads."""
        if self.layer_mix is not None and self.layer_mix.combine == "concat":
            return self.width * len(self.layer_mix.layers)
        if isinstance(self.encoder, Pyramid):
            return self.width << len(self.encoder.stages) - 1
        return self.width

    @property
    def token_table(self) -> Tokens | None:
        """The table that the decoder reads, or the encoder where there is no decoder beside it;
        None: of images or queries.
        """
        table = self.target if isinstance(self.target, Tokens) else self.source
        return table if isinstance(table, Tokens) and not self.queries else None

    @property
    def embedding_dim(self) -> int:
        """Width of the token table; without one, of the model."""
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
        """Number of object queries, 0 where the decoder reads tokens."""
        return self.target.count if isinstance(self.target, ObjectQueries | AnchorQueries) else 0

    @property
    def extra_tokens(self) -> int:
        """Number of tokens in front of the patches."""
        return len(self.source.extra_tokens) if isinstance(self.source, Patches) else 0

    @property
    def grid_cells(self) -> int:
        """Number of patches of an image, 0 for other inputs."""
        s = self.source
        return (s.image_size // s.patch_size) ** 2 if isinstance(s, Patches) else 0

    @property
    def patch_pixels(self) -> int:
        """Numbers of a patch, 0 for other inputs."""
        return (
            self.source.channels * self.source.patch_size**2
            if isinstance(self.source, Patches)
            else 0
        )
