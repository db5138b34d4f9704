"""What preparing a terabyte of text costs: time, core-hours and money, from measured rates."""

from dataclasses import dataclass
from typing import Any

from .hardware import CPU

MB, TB = 1e6, 1e12
# Measured, in MB/s of one core: docs/results/prepare.json (tokenising and writing shards, by two cores) and
# docs/results/deduplicate.json (filters).
TOKENISING = 3.99 / 2
FILTERS = {"quality filters": 4.44, "exact deduplication": 289.68, "near deduplication": 3.31}
CORES = 64  # of one node


@dataclass(frozen=True)
class Preparation:
    """Some bytes of text on some cores.

    Attributes:
        size: bytes.
        cores: number of cores that share the work; parts of a source are independent, so that the time is divided by them.
        price: dollars per core and hour.
        tokenising: MB/s of one core, without filters.
    """

    size: float
    cores: int = CORES
    price: float = CPU.price
    tokenising: float = TOKENISING

    @property
    def rates(self) -> dict[str, float]:
        """MB/s of one core, by stage."""
        return {"tokenising": self.tokenising} | FILTERS

    def core_hours(self, *stages: str) -> float:
        """Return the core-hours of some stages (default: all)."""
        return sum(self.size / MB / self.rates[stage] / 3600 for stage in stages or self.rates)

    def cost(self, *stages: str) -> dict[str, float]:
        hours = self.core_hours(*stages)
        return {
            "core_hours": hours,
            "seconds": hours * 3600 / self.cores,
            "dollars": hours * self.price,
        }

    def to_plain(self) -> dict[str, Any]:
        return {
            "bytes": self.size,
            "cores": self.cores,
            "dollars_per_core_hour": self.price,
            "megabytes_per_second_per_core": self.rates,
            "without_filters": self.cost("tokenising"),
            "with_filters": self.cost(),
        }
