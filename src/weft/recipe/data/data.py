"""The data of a run: what it is trained and validated on."""

from collections.abc import Iterator
from typing import Annotated, NamedTuple

from pydantic import Field

from ...support.registry import choice
from .formats import Source
from .mixture import Mixture
from .rows import RowSchema
from .tokenizers import TokenizerSpec


class DataPart(NamedTuple):
    """One source of a split, and what its rows hold; `name` is that of the folder with its
    shards.
    """

    name: str
    source: Source
    rows: RowSchema


@choice
class Data:
    """Training and validation data. The tokenizer is trained on `train`; everything is prepared
    once, into `prepared_folder`. Rows that cannot be read are skipped; if they are more than
    `max_bad_row_fraction` of all rows, preparing stops (see `data.quarantine`). A source of a
    mixture may name rows of its own, of the same kind as `rows`.
    """

    rows: RowSchema
    train: Source | Mixture
    valid: Source | Mixture | None = None
    tokenizer: TokenizerSpec | None = None
    prepared_folder: str | None = None  # None: prepared/<fingerprint of all this>
    max_bad_row_fraction: Annotated[float, Field(ge=0, le=1)] = 0.001

    def __post_init__(self) -> None:
        for part in self.parts():
            if type(part.rows) is not type(self.rows):
                raise ValueError(
                    f"{part.name} has {type(part.rows).__name__}, but Data.rows are "
                    f"{type(self.rows).__name__}; give every source the same kind"
                )
            shape = part.rows.input_shape
            whole = self.rows.input_shape
            if differing := [name for name in shape if shape[name] != whole[name]]:
                raise ValueError(
                    f"{part.name} differs from Data.rows in {', '.join(differing)}, and one model "
                    "cannot read both; give every source the same"
                )

    def parts(self, *splits: str) -> Iterator[DataPart]:
        """Yield the sources of some splits (default: "train" and "valid"), one or, of a mixture,
        several each.
        """
        for split, source in (("train", self.train), ("valid", self.valid)):
            if splits and split not in splits:
                continue
            if isinstance(source, Source):
                yield DataPart(split, source, self.rows)
            elif isinstance(source, Mixture):
                for part in source.sources:
                    yield DataPart(f"{split}-{part.name}", part.source, part.rows or self.rows)
