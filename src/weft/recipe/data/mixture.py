"""Mixtures: several sources in one run, each sample drawn from one of them at a rate."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from ...spec import PositiveFloat, PositiveInt
from ...support.registry import choice
from .formats import Source
from .rows import RowSchema


class MixingRates:
    """Base of what says how often each source of a mixture is read."""

    def shares(self, sizes: Sequence[int]) -> tuple[float, ...]:
        """Return the share of each source; they need not sum to 1.

        Args:
            sizes: the number of samples of each source.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method shares()")


@choice
class FixedRates(MixingRates):
    """One rate per source, in the order of the sources; 2 is read twice as often as 1."""

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
    mixing (arXiv:1910.10683, section
    3.5.2). Over languages, .7 is multilingual BERT's exponent and .3 XLM-R's (arXiv:1911.02116,
    section 3.1).
    """

    exponent: Annotated[float, Field(ge=0, le=1)] = 1.0
    limit: PositiveInt | None = None  # K, of the samples that count; None: all

    def shares(self, sizes: Sequence[int]) -> tuple[float, ...]:
        limit = self.limit or max(sizes)
        return tuple(float(min(size, limit)) ** self.exponent for size in sizes)


@choice
class NamedSource:
    """A source of a mixture: its name, and what its rows hold where that differs from `Data.rows`,
    such as another template.
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.]*$")]
    source: Source
    rows: RowSchema | None = None


@choice
class Mixture:
    """Several sources at given rates: tasks with a prefix each (T5), or languages. Every source has
    epochs of its own, in each of which all its samples come once; the rates hold in every stretch
    of 65,536 samples.
    """

    sources: Annotated[tuple[NamedSource, ...], Field(min_length=1)]
    rates: MixingRates = ProportionalRates()

    def __post_init__(self) -> None:
        names = [part.name for part in self.sources]
        if len(set(names)) < len(names):
            raise ValueError(
                f"Mixture.sources are named {', '.join(names)}; give each its own name"
            )
