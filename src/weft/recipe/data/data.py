"""The `Data` dataclass: training and validation data of a run."""

from collections.abc import Iterator
from typing import Annotated, NamedTuple

from pydantic import Field

from ...support.registry import choice
from .formats import Source
from .mixture import Mixture
from .rows import RowSchema
from .tokenizers import TokenizerSpec


class DataPart(NamedTuple):
    """One source of a split with its row schema; `name` is the directory of its shards."""

    name: str
    source: Source
    rows: RowSchema


@choice
class Data:
    """Training and validation data, prepared once into shards. Rows that cannot be read are skipped
    (see `weft.data.reading.quarantine`).

    Args:
        rows: the columns and content of a row. A source of a mixture may have its own, of the same
            type.
        train: the training data, on which the tokenizer is trained too.
        valid: the validation data (default: none).
        tokenizer: the tokenizer; None for images.
        prepared_folder: the directory of the shards (default: prepared/<fingerprint of this
            value>).
        max_bad_row_fraction: the largest fraction of unreadable rows; more stop preparation with an
            error (default: 0.001).
    """

    rows: RowSchema
    train: Source | Mixture
    valid: Source | Mixture | None = None
    tokenizer: TokenizerSpec | None = None
    prepared_folder: str | None = None
    max_bad_row_fraction: Annotated[float, Field(ge=0, le=1)] = 0.001

    def __post_init__(self) -> None:
        for part in self.parts():
            if type(part.rows) is not type(self.rows):
                raise ValueError(
                    f"{part.name}: rows are {type(part.rows).__name__}, but Data.rows are "
                    f"{type(self.rows).__name__}; give every source the same type of rows"
                )
            shape = part.rows.input_shape
            whole = self.rows.input_shape
            if differing := [name for name in shape if shape[name] != whole[name]]:
                raise ValueError(
                    f"{part.name}: rows differ from Data.rows in {', '.join(differing)}; give "
                    "every source the same, since one model reads all"
                )

    def parts(self, *splits: str) -> Iterator[DataPart]:
        """Yield the sources of splits; a mixture has several.

        Args:
            splits: "train" or "valid" (default: both).
        """
        for split, source in (("train", self.train), ("valid", self.valid)):
            if splits and split not in splits:
                continue
            if isinstance(source, Source):
                yield DataPart(split, source, self.rows)
            elif isinstance(source, Mixture):
                for part in source.sources:
                    yield DataPart(f"{split}-{part.name}", part.source, part.rows or self.rows)
