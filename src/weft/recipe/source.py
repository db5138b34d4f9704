"""A source of data: files and how they are read."""

from typing import Annotated, Literal

from pydantic import Field

from ..registry import choice, names
from ..spec import NonNegativeInt
from ..synonyms import suggest
from .filters import Filter
from .formats import Format


@choice
class Source:
    """Files to read: local or any fsspec address, globs allowed; `.gz` and `.zst` are decompressed.

    A relative path is looked up here, then under $WEFT_DATA. `column_names` are the names of the columns where the files have none.
    `filters` drop rows when the data is prepared, in their order: put those that look at one row before those that compare rows."""

    paths: tuple[str, ...]
    format: str | None = None  # one of `registry.names(Format)`; None: from the row and the file
    document_boundary: Literal["file", "line", "blank", "heading"] = (
        "blank"  # where a document of plain text ends
    )
    column_names: tuple[str, ...] = ()
    has_header: bool = True  # csv and tsv: the first line names the columns
    delimiter: Literal[",", ";", "|", "\t"] | None = (
        None  # of a csv; None: detected from its first lines
    )
    fraction: tuple[Annotated[float, Field(ge=0, le=1)], Annotated[float, Field(ge=0, le=1)]] = (
        0.0,
        1.0,
    )  # read only this part of each file
    split_seed: NonNegativeInt | None = (
        None  # `fraction` picks rows of a table at random, by this seed; None: consecutive rows
    )
    filters: tuple[Filter, ...] = ()

    def __post_init__(self) -> None:
        if self.format is not None and self.format not in names(Format):
            raise ValueError(
                f"Source.format = {self.format!r}; {suggest(self.format, names(Format))}"
            )
