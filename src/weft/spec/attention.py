"""Attention: heads, projections and the pattern of keys that each query attends to."""

from collections.abc import Iterator
from typing import ClassVar, Literal, NamedTuple

from ..support.console import count_of
from ..support.registry import choice, implements
from ..support.value_tree import format_inline
from ..support.values import FiniteFloat, NonNegativeInt, PositiveFloat, PositiveInt, Probability
from .inputs import Patches, ResNet, Tokens
from .norms import Norm, RMSNorm, norm_flops, norm_shapes
from .parts import Inner, Problem, Shapes, linear_shapes, with_prefix
from .positions import PositionBias, RoPE

# Which keys a query attends to


class ScoreCount(NamedTuple):
    """The numbers of projected queries, projected keys and computed scores."""

    queries: int
    keys: int
    scores: int


class Pattern:
    """Base of attention patterns: which keys a query attends to.

    Its implementation is a `weft.nn.kernels.masks.PatternMask`, which decides for every pair of
    positions, or a subclass of `weft.nn.layers.attention.AttentionLayer`.
    """

    # supports RoPE and a position bias
    takes_positions: ClassVar[bool] = True
    # allowed in a Pyramid: needs no mask and no token positions
    on_grid: ClassVar[bool] = False

    @property
    def looks_ahead(self) -> bool:
        """Whether a query attends to later keys; such a pattern cannot decode token by token."""
        return True

    @property
    def reach(self) -> int | None:
        """The number of earlier keys that a query attends to; None: all."""
        return None

    @property
    def max_length(self) -> int | None:
        """The longest supported sequence; None: unlimited."""
        return None

    def shapes(self, heads: int) -> Shapes:
        """Yield the pattern's own parameters."""
        return iter(())

    def scores(self, queries: int, keys: int, side: int) -> ScoreCount:
        """Return the computation for one sequence.

        Args:
            queries: the number of query tokens.
            keys: the number of key tokens.
            side: rows of the image grid; 0 for text.
        """
        return ScoreCount(queries, keys, queries * keys)

    def projection_flops(self, keys: int, kv_width: int) -> int:
        """Return the FLOPs of the pattern's own maps of keys and values.

        Args:
            keys: the number of key tokens.
            kv_width: the width of keys and values together.
        """
        return 0

    def describe(self) -> str:
        """Return the pattern in a few words."""
        return format_inline(self)

    def check(self, path: str, source: Tokens | Patches | ResNet) -> Iterator[Problem]:
        """Yield the problems of the pattern itself and with what the model reads."""
        return iter(())


@choice
class FullAttention(Pattern):
    """Every query attends to every key."""

    on_grid = True

    def describe(self) -> str:
        return "full"


@choice
class CausalAttention(Pattern):
    """A query attends to itself and to earlier keys."""

    @property
    def looks_ahead(self) -> bool:
        return False

    def describe(self) -> str:
        return "causal"


@choice
class SlidingWindow(Pattern):
    """A query at i attends to keys from i - before to i + after (Beltagy et al. 2020,
    arXiv:2004.05150).

    Args:
        before: the number of earlier keys.
        after: the number of later keys.
    """

    before: NonNegativeInt
    after: NonNegativeInt

    @property
    def looks_ahead(self) -> bool:
        return self.after > 0

    @property
    def reach(self) -> int | None:
        return self.before

    def scores(self, queries: int, keys: int, side: int) -> ScoreCount:
        size = sliding_window_block(self, queries, keys)
        if size is None:
            return ScoreCount(queries, keys, queries * keys)
        # every query of a block is compared with all keys within the block's reach
        blocks = -(-queries // size)
        return ScoreCount(queries, keys, blocks * size * (size + self.before + self.after))

    def describe(self) -> str:
        if self.after:
            return f"window of {self.before:,} before and {self.after:,} after"
        return f"causal window of {self.before + 1:,}"


@choice
class ShiftedWindows(Pattern):
    """Square windows on the image grid (Liu et al. 2021, arXiv:2103.14030).

    Args:
        size: the side of a window in cells (default: 7).
        shift: the shift of the windows in cells (default: 0).
        bias: whether the scores have a learned bias per offset (default: True).
    """

    size: PositiveInt = 7
    shift: NonNegativeInt = 0
    bias: bool = True
    takes_positions = False
    on_grid = True

    def shapes(self, heads: int) -> Shapes:
        if self.bias:
            yield "offsets.weight", ((2 * self.size - 1) ** 2, heads)

    def scores(self, queries: int, keys: int, side: int) -> ScoreCount:
        # a window is at most as large as the grid
        window = min(self.size, side)
        padded = -(-side // window) * window
        return ScoreCount(padded**2, padded**2, padded**2 * window**2)

    def describe(self) -> str:
        shifted = f" shifted by {self.shift}" if self.shift else ""
        return f"windows of {self.size} × {self.size}{shifted}"

    def check(self, path: str, source: Tokens | Patches | ResNet) -> Iterator[Problem]:
        pure = isinstance(source, Patches) and not source.extra_tokens
        if not pure or not path.startswith("encoder"):
            yield (
                path,
                "ShiftedWindows needs an encoder on an image grid without extra tokens; give "
                "source=Patches(extra_tokens=())",
            )
        if self.shift >= self.size:
            yield f"{path}.shift", f"{self.shift} must be less than size {self.size}"


@choice
class Linformer(Pattern):
    """Keys and values projected along the length (Wang et al. 2020, arXiv:2006.04768).

    Args:
        length: the longest sequence in tokens.
        rank: the number of projected keys and values.
    """

    length: PositiveInt
    rank: PositiveInt
    takes_positions = False

    @property
    def max_length(self) -> int | None:
        return self.length

    def shapes(self, heads: int) -> Shapes:
        yield "keys.weight", (self.length, self.rank)
        yield "values.weight", (self.length, self.rank)

    def scores(self, queries: int, keys: int, side: int) -> ScoreCount:
        return ScoreCount(queries, keys, queries * self.rank)

    def projection_flops(self, keys: int, kv_width: int) -> int:
        return 2 * keys * self.rank * kv_width

    def describe(self) -> str:
        return f"Linformer, {self.length:,} keys to {self.rank:,}"


def sliding_window_block(w: SlidingWindow, queries: int, keys: int) -> int | None:
    """Return the queries per block of block-local attention (`weft.nn.kernels.block_local`); None
    if masked attention is as fast or faster.
    """
    reach = w.before + w.after
    size = min(max(1 << max((reach + 1).bit_length() - 2, 0), 32), 256)  # about half the window
    blocks = -(-queries // size)
    return size if queries >= 512 and 2 * blocks * size * (size + reach) < queries * keys else None


@choice
class QKNorm:
    """Norms on the queries and keys before RoPE (Dehghani et al. 2023, arXiv:2302.05442, section
    2).

    Args:
        norm: the norm (default: `RMSNorm()`).
        per: "head" normalises each head with one gain for all heads (Qwen3); "projection"
            normalises all heads together (OLMo 2). Default: "head".
    """

    norm: Norm = RMSNorm()
    per: Literal["head", "projection"] = "head"


@choice
class Attention(Inner):
    """softmax(Q Kᵀ · scale + bias + mask) V in `heads` groups (Vaswani et al. 2017, section 3.2).

    Args:
        heads: the number H of query heads; it divides the model width unless `head_dim` is given.
        kv_heads: the number of key and value heads; 1 for multi-query attention (default: `heads`).
        head_dim: the width d_k of the queries and keys of a head (default: width / heads).
        value_dim: the width d_v of the values of a head (default: d_k).
        pattern: which keys a query attends to (default: `FullAttention()`).
        rope: rotary positions of queries and keys (default: none).
        position_bias: a bias on the scores of this block; `Stack.position_bias` is shared by all
            blocks (default: none).
        query_key_positions: how positions p of vectors x enter queries and keys: "added", W(x + p)
            (DETR; default); "projected", Wx + Vp; "concatenated", a head's [Wx; Vp] (Conditional
            DETR, arXiv:2108.06152, section 3.2; DAB-DETR); "projected-concatenated", both.
        scale: the factor of the scores (default: 1 / √d_k).
        softcap: c in s <- c · tanh(s / c) of the scaled scores s before bias and mask (Gemma 2,
            arXiv:2408.00118, section 2; default: none).
        qk_norm: norms on queries and keys (default: none).
        bias: whether the query, key and value projections have a bias (default: True).
        out_bias: whether the output projection has a bias (default: True).
        dropout: the dropout probability of attention weights (default: 0).
    """

    heads: PositiveInt
    kv_heads: PositiveInt | None = None
    head_dim: PositiveInt | None = None
    value_dim: PositiveInt | None = None
    pattern: Pattern = FullAttention()
    rope: RoPE | None = None
    position_bias: PositionBias | None = None
    query_key_positions: Literal["added", "projected", "concatenated", "projected-concatenated"] = (
        "added"
    )
    scale: FiniteFloat | None = None
    softcap: PositiveFloat | None = None
    qk_norm: QKNorm | None = None
    bias: bool = True
    out_bias: bool = True
    dropout: Probability = 0.0

    def shapes(self, width: int) -> Shapes:
        k, v, g = head_dims(self, width)
        yield from linear_shapes("query", width, self.heads * k, self.bias)
        yield from linear_shapes("key", width, g * k, self.bias)
        yield from linear_shapes("value", width, g * v, self.bias)
        yield from linear_shapes("out", self.heads * v, width, self.out_bias)
        if self.query_key_positions != "added":
            yield from linear_shapes("query_position", width, self.heads * k, self.bias)
            yield from linear_shapes("key_position", width, g * k, self.bias)
        if self.query_key_positions == "projected-concatenated":
            yield from linear_shapes("query_added", width, self.heads * k, self.bias)
        if self.position_bias is not None:
            yield from with_prefix("position_bias", self.position_bias.shapes(self.heads))
        if self.qk_norm is not None:
            heads = (1, 1) if self.qk_norm.per == "head" else (self.heads, g)
            yield from norm_shapes("query_norm", self.qk_norm.norm, heads[0] * k)
            yield from norm_shapes("key_norm", self.qk_norm.norm, heads[1] * k)
        yield from self.pattern.shapes(self.heads)

    def flops(self, width: int, queries: int, keys: int, side: int) -> int:
        k, v, g = head_dims(self, width)
        queries, keys, scores = self.pattern.scores(queries, keys, side)
        work = (
            2 * queries * self.heads * width * (k + v)
            + 2 * scores * self.heads * (k + v)
            + 2 * keys * g * width * (k + v)
            + self.pattern.projection_flops(keys, g * (k + v))
        )
        if self.query_key_positions != "added":
            work += 2 * k * width * (queries * self.heads + keys * g)
        if "concatenated" in self.query_key_positions:
            work += 2 * scores * self.heads * k
        if self.query_key_positions == "projected-concatenated":
            work += 2 * queries * self.heads * width * k
        if self.qk_norm is not None:
            heads = (1, 1) if self.qk_norm.per == "head" else (self.heads, g)
            work += norm_flops(self.qk_norm.norm, heads[0] * k, queries * self.heads // heads[0])
            work += norm_flops(self.qk_norm.norm, heads[1] * k, keys * g // heads[1])
        return work

    def activations(self, width: int) -> float:
        k, v, g = head_dims(self, width)
        return width + self.heads * (k + v) + g * (k + v)

    def describe(self, width: int) -> str:
        """Return heads, pattern and positions in a few words."""
        k, v, g = head_dims(self, width)
        parts = [f"{count_of(self.heads, 'head')} of {k}"]
        parts += [f"values of {v}"] if v != k else []
        parts += [count_of(g, "key/value head")] if g != self.heads else []
        parts += [self.pattern.describe()]
        parts += [self.rope.describe()] if self.rope else []
        if self.query_key_positions != "added":
            parts.append(f"{self.query_key_positions} positions")
        parts += [self.position_bias.describe()] if self.position_bias else []
        if self.scale:
            parts.append("unscaled" if self.scale == 1 else f"scaled by {self.scale:.4g}")
        parts += [f"scores capped at {self.softcap:g}"] if self.softcap else []
        if self.qk_norm is not None:
            where = "each head" if self.qk_norm.per == "head" else "all heads"
            name = type(self.qk_norm.norm).__name__
            parts.append(f"{name} on the queries and keys of {where}")
        return ", ".join(parts)


def head_dims(a: Attention, d: int) -> tuple[int, int, int]:
    """Return d_k, d_v and the number of key and value heads."""
    key = a.head_dim or d // a.heads
    return key, a.value_dim or key, a.kv_heads or a.heads


implements(Attention, "weft.nn.layers.attention:build_attention")
implements(FullAttention, "weft.nn.kernels.masks:FullMask")
implements(CausalAttention, "weft.nn.kernels.masks:CausalMask")
implements(SlidingWindow, "weft.nn.kernels.masks:WindowMask")
implements(ShiftedWindows, "weft.nn.layers.images.shifted_windows:ShiftedWindowAttention")
implements(Linformer, "weft.nn.layers.linformer:LinformerAttention")
