"""Positions: added to the input, added at queries and keys, as rotations, or as a bias on the
scores.
"""

from collections.abc import Iterator
from typing import ClassVar, Literal

from ..support.registry import choice, implements
from ..support.value_tree import format_inline
from ..support.values import NonNegativeInt, PositiveFloat, PositiveFraction, PositiveInt
from .parts import Problem, Shapes, measured_shapes


class InputPositions:
    """Base of positions that are added to token embeddings.

    Its implementation is a layer built with (positions, width). It is called with positions (B, L),
    or None for 0, 1, 2, …, and the token embeddings (B, L, D), and returns the vectors to add.
    """

    width_unit: ClassVar[int] = 1  # the width must be a multiple of it

    @property
    def max_length(self) -> int | None:
        """The number of positions; None: unlimited."""
        return None

    def shapes(self, width: int) -> Shapes:
        """Yield name and shape of every parameter."""
        return measured_shapes(self, width)

    def describe(self) -> str:
        """Return the positions in a few words."""
        return format_inline(self)


@choice
class SinusoidalPositions(InputPositions):
    """Sines and cosines of the position (Vaswani et al. 2017, section 3.5).

    Args:
        layout: "interleaved" alternates sines and cosines; "halves" puts all sines first, as in
            Marian (default: "interleaved").
    """

    layout: Literal["interleaved", "halves"] = "interleaved"
    width_unit = 2

    def shapes(self, width: int) -> Shapes:
        return iter(())

    def describe(self) -> str:
        return "sinusoids"


@choice
class LearnedPositions(InputPositions):
    """A learned vector per position.

    Args:
        count: the number of positions.
        offset: unused rows at the start of the table (2 in RoBERTa and BART; default: 0).
    """

    count: PositiveInt
    offset: NonNegativeInt = 0

    @property
    def max_length(self) -> int | None:
        return self.count

    def shapes(self, width: int) -> Shapes:
        yield "weight", (self.count + self.offset, width)

    def describe(self) -> str:
        return "learned positions"


@choice
class LearnedPositions2D:
    """A learned half-width vector per row and per column, concatenated.

    Args:
        count: the number of rows and of columns (default: 50).
    """

    count: PositiveInt = 50
    width_unit = 2

    def describe(self) -> str:
        return "learned rows and columns"


@choice
class SinusoidalPositions2D:
    """Fixed sinusoids of row and column, concatenated (MAE, arXiv:2111.06377; DETR,
    arXiv:2005.12872, appendix A.4).

    Args:
        scale: "grid" counts cells from 0 and stores the table in the checkpoint; "unit" scales the
            visible image to 2π (default: "grid").
        temperature: the base of the wavelengths (default: 10000; DAB-DETR: 20, as positions are at
            most 2π).
    """

    scale: Literal["grid", "unit"] = "grid"
    temperature: PositiveFloat = 10_000.0
    width_unit = 4

    def describe(self) -> str:
        return "sinusoids of row and column"


@choice
class RoPEScaling:
    """Llama 3.1's scaling of low rotary frequencies for longer contexts (arXiv:2407.21783).

    Args:
        factor: the divisor of low frequencies.
        low_freq_factor: wavelengths longer than original_context_length / low_freq_factor are fully
            scaled (default: 1).
        high_freq_factor: wavelengths shorter than original_context_length / high_freq_factor are
            unchanged (default: 4).
        original_context_length: the context length in tokens before scaling (default: 8192).
    """

    factor: PositiveFloat
    low_freq_factor: PositiveFloat = 1.0
    high_freq_factor: PositiveFloat = 4.0
    original_context_length: PositiveInt = 8192


@choice
class RoPE:
    """Rotary positions: pairs of q and k dimensions rotate by angles proportional to the position
    (Su et al. 2021, arXiv:2104.09864).

    Args:
        theta: the base of the frequencies (default: 10000).
        fraction: the fraction of the head width that rotates (default: 1).
        scaling: scaling of low frequencies for longer contexts (default: none).
    """

    theta: PositiveFloat = 10_000.0
    fraction: PositiveFraction = 1.0
    scaling: RoPEScaling | None = None

    def describe(self) -> str:
        share = f" on {self.fraction:.0%}" if self.fraction < 1 else ""
        base = f" of base {self.theta:,.0f}" if self.theta != 10_000 else ""
        stretched = f" stretched × {self.scaling.factor:g}" if self.scaling else ""
        return f"rotary{share}{base}{stretched}"


class PositionBias:
    """Base of biases on the attention scores by position.

    Its implementation is a layer built with (bias, heads). It is called with a
    `weft.nn.kernels.masks.Positions` and returns (B or 1, H, L, M).
    """

    def shapes(self, heads: int) -> Shapes:
        """Yield name and shape of every parameter."""
        return measured_shapes(self, heads)

    def describe(self) -> str:
        """Return the bias in a few words."""
        return format_inline(self)

    def check(self, path: str) -> Iterator[Problem]:
        """Yield the problems of the bias."""
        return iter(())


@choice
class RelativeBias(PositionBias):
    """A learned scalar per head and log-spaced distance (Raffel et al. 2020, arXiv:1910.10683,
    section 2.1).

    Args:
        buckets: the number of distance buckets, even and at least 4 (default: 32).
        max_distance: the distance from which all keys share the last bucket (default: 128).
        bidirectional: whether half of the buckets are for later keys (default: True).
    """

    buckets: PositiveInt = 32
    max_distance: PositiveInt = 128
    bidirectional: bool = True

    def shapes(self, heads: int) -> Shapes:
        yield "weight", (self.buckets, heads)

    def describe(self) -> str:
        sides = "two" if self.bidirectional else "one"
        return f"{self.buckets} {sides}-sided buckets to distance {self.max_distance}"

    def check(self, path: str) -> Iterator[Problem]:
        exact = self.buckets // (4 if self.bidirectional else 2)
        if self.buckets % 2 or exact < 1 or self.max_distance <= exact:
            yield (
                path,
                f"{self.buckets} buckets to distance {self.max_distance}: give an even count of 4 "
                "or more and a longer distance",
            )


@choice
class ALiBi(PositionBias):
    """A fixed slope per head times the distance (Press et al. 2021, arXiv:2108.12409)."""

    def shapes(self, heads: int) -> Shapes:
        return iter(())

    def describe(self) -> str:
        return "ALiBi"


implements(SinusoidalPositions, "weft.nn.layers.positions:SinusoidalPositionsLayer")
implements(LearnedPositions, "weft.nn.layers.positions:LearnedPositionsLayer")
implements(RelativeBias, "weft.nn.layers.positions:RelativeBiasLayer")
implements(ALiBi, "weft.nn.layers.positions:ALiBiLayer")
