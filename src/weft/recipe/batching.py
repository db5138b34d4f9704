"""Batching: the samples of one step, over all ranks and micro-batches."""

from dataclasses import replace
from typing import ClassVar

from ..spec import PositiveInt
from ..support.registry import choice, implements


class Batching:
    """Base of batching strategies. Its implementation is built with (batching, samples, seed,
    length) and is a `weft.data.batches.batching.BatchPlanner`.
    """

    length: int  # tokens of the longest row
    packs: ClassVar[bool] = False  # several samples share a row
    # `Recipe.length_schedule` may change the length, by `at_length`
    fixed_length: ClassVar[bool] = False
    size_field: ClassVar[str] = "size"  # the field to reduce for a smaller step

    def rows_per_step(self) -> int:
        """Return the approximate number of rows per step."""
        raise NotImplementedError(f"{type(self).__name__} has no method rows_per_step()")

    def at_length(self, length: int) -> "Batching":
        """Return the same batching with as many tokens per step in rows of another length.

        Args:
            length: the new row length in tokens.
        """
        return self


@choice
class FixedBatch(Batching):
    """A fixed number of samples per step; running text is cut into windows of `length` tokens.

    Args:
        size: the samples per step.
        length: the longest row in tokens.
        sort_pool: the number of samples sorted by length together, which reduces padding (default:
            no sorting).
        repeats: consecutive repetitions of a sample, each with its own random draws (Hoffer et al.
            2019, arXiv:1901.09335; default: 1).
    """

    fixed_length = True
    size: PositiveInt
    length: PositiveInt
    sort_pool: PositiveInt | None = None
    repeats: PositiveInt = 1

    def __post_init__(self) -> None:
        if self.repeats > 1 and self.sort_pool is not None:
            raise ValueError(
                f"FixedBatch.repeats = {self.repeats} cannot be combined with sort_pool = "
                f"{self.sort_pool}; use sort_pool=None or repeats=1"
            )

    def rows_per_step(self) -> int:
        return self.size

    def at_length(self, length: int) -> "FixedBatch":
        return replace(self, size=max(1, self.size * self.length // length), length=length)


@choice
class PackedBatch(Batching):
    """Rows of `length` tokens, each filled with several short samples that do not attend to each
    other.

    Args:
        size: the approximate rows per step.
        length: the length of a row in tokens.
        pack_pool: the number of samples packed together (default: 2048).
    """

    packs = True
    fixed_length = True
    size: PositiveInt
    length: PositiveInt
    pack_pool: PositiveInt = 2048

    def rows_per_step(self) -> int:
        return self.size

    def at_length(self, length: int) -> "PackedBatch":
        return replace(self, size=max(1, self.size * self.length // length), length=length)


@choice
class TokenBudget(Batching):
    """Batches of samples of similar length with about `tokens` tokens per step, padding included
    (Vaswani et al. 2017, section 5.1).

    Args:
        tokens: the tokens per step.
        length: the longest row in tokens; longer samples are truncated.
        sort_pool: the number of samples sorted by length together (default: 4096).
    """

    size_field = "tokens"
    tokens: PositiveInt
    length: PositiveInt
    sort_pool: PositiveInt = 4096

    def rows_per_step(self) -> int:
        return max(1, self.tokens // self.length)


implements(FixedBatch, "weft.data.batches.batching:build_fixed_planner")
implements(PackedBatch, "weft.data.batches.batching:build_packed_planner")
implements(TokenBudget, "weft.data.batches.batching:build_token_planner")
