"""How samples become batches: what one step reads, over all ranks and micro-batches."""

from dataclasses import replace
from typing import ClassVar

from ..spec import PositiveInt
from ..support.registry import choice, implements


class Batching:
    """Base of every way to make batches. Built with (batching, samples, seed, length) into a
    `data.batching.BatchPlanner`.
    """

    length: int  # tokens of the longest row
    packs: ClassVar[bool] = False  # several samples share a row
    fixed_length: ClassVar[bool] = (
        False  # True: `Recipe.length_schedule` may change it, by `at_length`
    )
    size_field: ClassVar[str] = "size"  # what makes a step smaller

    def rows_per_step(self) -> int:
        """Return the number of rows of a step, about."""
        raise NotImplementedError(f"{type(self).__name__} has no method rows_per_step()")

    def at_length(self, length: int) -> "Batching":
        """Return the same batching with as many tokens in rows of another length."""
        return self


@choice
class FixedBatch(Batching):
    """`count` samples a step; running text is cut into windows of `length` tokens."""

    fixed_length = True
    size: PositiveInt
    length: PositiveInt
    sort_pool: PositiveInt | None = (
        # samples that are sorted together, so that those of a step are about as long; None: in any
        # order
        None
    )
    # times in a row that a sample is read, each with its own draws (Hoffer et al. 2019,
    # arXiv:1901.09335)
    repeats: PositiveInt = 1

    def __post_init__(self) -> None:
        if self.repeats > 1 and self.sort_pool is not None:
            raise ValueError(
                f"FixedBatch.repeats = {self.repeats}: samples that are sorted are not repeated; "
                "leave sort_pool out"
            )

    def rows_per_step(self) -> int:
        return self.size

    def at_length(self, length: int) -> "FixedBatch":
        return replace(self, size=max(1, self.size * self.length // length), length=length)


@choice
class PackedBatch(Batching):
    """About `count` rows of `length` tokens a step, each filled with several short samples that do
    not see each other.
    """

    packs = True
    fixed_length = True
    size: PositiveInt
    length: PositiveInt
    pack_pool: PositiveInt = 2048  # samples that are packed together

    def rows_per_step(self) -> int:
        return self.size

    def at_length(self, length: int) -> "PackedBatch":
        return replace(self, size=max(1, self.size * self.length // length), length=length)


@choice
class TokenBudget(Batching):
    """Samples of like length together, about `tokens` a step, padding included (Vaswani et al.
    2017, section 5.1).
    """

    size_field = "tokens"
    tokens: PositiveInt
    length: PositiveInt  # longer samples are cut
    sort_pool: PositiveInt = 4096  # samples that are sorted together

    def rows_per_step(self) -> int:
        return max(1, self.tokens // self.length)


implements(FixedBatch, "weft.data.batches.batching:build_fixed_planner")
implements(PackedBatch, "weft.data.batches.batching:build_packed_planner")
implements(TokenBudget, "weft.data.batches.batching:build_token_planner")
