"""Mixtures: several sources in one run, each sampled at a rate."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from ...spec import PositiveFloat, PositiveInt
from ...support.registry import choice
from .formats import Source
from .rows import RowSchema


class MixingRates:
    """Base of sampling rates of the sources of a mixture."""

    def shares(self, sizes: Sequence[int]) -> tuple[float, ...]:
        """Return the relative rate of each source; the sum need not be 1.

        Args:
            sizes: the number of samples of each source.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method shares()")


@choice
class FixedRates(MixingRates):
    """Fixed relative rates.

    Args:
        rates: one rate per source, in order; a source with rate 2 is read twice as often as one
            with 1.
    """

    rates: Annotated[tuple[PositiveFloat, ...], Field(min_length=1)]

    def shares(self, sizes: Sequence[int]) -> tuple[float, ...]:
        if len(sizes) != len(self.rates):
            raise ValueError(
                f"FixedRates.rates = {self.rates} for {len(sizes)} sources; give one per source"
            )
        return self.rates


@choice
class ProportionalRates(MixingRates):
    """p ∝ min(n, limit) ^ exponent for a source of n samples.

    Exponent 1 with a limit is T5's examples-proportional mixing, 1/T its temperature T, 0 equal
    mixing (arXiv:1910.10683, section 3.5.2). Over languages, .7 is multilingual BERT's exponent and
    .3 XLM-R's (arXiv:1911.02116, section 3.1).

    Args:
        exponent: the exponent, from 0 to 1 (default: 1).
        limit: the largest number of samples that counts (default: unlimited).
    """

    exponent: Annotated[float, Field(ge=0, le=1)] = 1.0
    limit: PositiveInt | None = None

    def shares(self, sizes: Sequence[int]) -> tuple[float, ...]:
        limit = self.limit or max(sizes)
        return tuple(float(min(size, limit)) ** self.exponent for size in sizes)


@choice
class NamedSource:
    """A source of a mixture.

    Args:
        name: the name of the source: letters, digits, "." and "_".
        source: its files.
        rows: its row schema if it differs from `Data.rows`, such as another template.
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.]*$")]
    source: Source
    rows: RowSchema | None = None


@choice
class Mixture:
    """Several sources at given rates: tasks with a prefix each (T5), or languages.

    Every source has its own epochs, each of which reads all its samples once. The rates hold in
    every 65,536 consecutive samples.

    Args:
        sources: the sources.
        rates: the sampling rates (default: `ProportionalRates()`).
    """

    sources: Annotated[tuple[NamedSource, ...], Field(min_length=1)]
    rates: MixingRates = ProportionalRates()

    def __post_init__(self) -> None:
        names = [part.name for part in self.sources]
        if len(set(names)) < len(names):
            raise ValueError(
                f"Mixture.sources have the names {', '.join(names)}; give each a different name"
            )
