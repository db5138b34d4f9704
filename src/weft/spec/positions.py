"""Positions, which enter in four ways: at the input, at query and key, by rotation, on the
score.
"""

from collections.abc import Iterator
from typing import ClassVar, Literal

from ..support.registry import choice, implements
from ..support.value_tree import format_inline
from ..support.values import NonNegativeInt, PositiveFloat, PositiveFraction, PositiveInt
from .parts import Problem, Shapes, measured_shapes


class InputPositions:
    """Base of positions that are added to the tokens' vectors at the input.

    Built with (positions, width) into a layer that is called with positions (B, L), or None for 0,
    1, 2, …, and the tokens' vectors (B, L, D), and returns what is added to these.
    """

    width_unit: ClassVar[int] = 1  # divides the width

    @property
    def max_length(self) -> int | None:
        """How many tokens there are positions for; None: any number."""
        return None

    def shapes(self, width: int) -> Shapes:
        """Yield name and shape of every parameter."""
        return measured_shapes(self, width)

    def describe(self) -> str:
        """Return the positions in a few words."""
        return format_inline(self)


@choice
class SinusoidalPositions(InputPositions):
    """Sines and cosines of the position (Vaswani et al. 2017, section 3.5); Marian writes all sines
    first.
    """

    layout: Literal["interleaved", "halves"] = "interleaved"
    width_unit = 2

    def shapes(self, width: int) -> Shapes:
        return iter(())

    def describe(self) -> str:
        return "sinusoids"


@choice
class LearnedPositions(InputPositions):
    """One vector per position; the first `offset` rows of the table belong to no position (RoBERTa,
    BART: 2).
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
    """One half-width vector per row and one per column, concatenated."""

    count: PositiveInt = 50
    width_unit = 2

    def describe(self) -> str:
        return "learned rows and columns"


@choice
class SinusoidalPositions2D:
    """Fixed sinusoids of row and column, concatenated (MAE, arXiv:2111.06377; DETR,
    arXiv:2005.12872, appendix A.4).

    `grid` counts cells from 0 and is stored as a table in the file; `unit` scales the visible image
    to 2π.
    """

    scale: Literal["grid", "unit"] = "grid"
    temperature: PositiveFloat = 10_000.0  # DAB-DETR: 20, as positions are at most 2π
    width_unit = 4

    def describe(self) -> str:
        return "sinusoids of row and column"


@choice
class RoPEScaling:
    """Llama 3.1's slowing of low rotary frequencies for longer contexts (arXiv:2407.21783)."""

    factor: PositiveFloat
    low_freq_factor: PositiveFloat = 1.0
    high_freq_factor: PositiveFloat = 4.0
    original_context_length: PositiveInt = 8192


@choice
class RoPE:
    """Rotate pairs of q and k by angles that grow with the position (Su et al. 2021,
    arXiv:2104.09864).
    """

    theta: PositiveFloat = 10_000.0
    fraction: PositiveFraction = 1.0  # the share of the head width that turns
    scaling: RoPEScaling | None = None

    def describe(self) -> str:
        share = f" on {self.fraction:.0%}" if self.fraction < 1 else ""
        base = f" of base {self.theta:,.0f}" if self.theta != 10_000 else ""
        stretched = f" stretched × {self.scaling.factor:g}" if self.scaling else ""
        return f"rotary{share}{base}{stretched}"


class PositionBias:
    """Base of every bias on the attention scores by position.

    Built with (bias, heads) into a layer that is called with a `kernels.masks.Positions` and
    returns (B or 1, H, L, M).
    """

    def shapes(self, heads: int) -> Shapes:
        """Yield name and shape of every parameter."""
        return measured_shapes(self, heads)

    def describe(self) -> str:
        """Return the bias in a few words."""
        return format_inline(self)

    def check(self, path: str) -> Iterator[Problem]:
        """Yield what does not fit together in it."""
        return iter(())


@choice
class RelativeBias(PositionBias):
    """A learned scalar per head and log-spaced distance (Raffel et al. 2020, arXiv:1910.10683,
    section 2.1).
    """

    buckets: PositiveInt = 32
    max_distance: PositiveInt = 128
    bidirectional: bool = True  # tell future from past: half of the buckets each

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
