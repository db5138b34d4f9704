"""Drop tables: the rows of a piece that filters drop, with the reasons, in one file with a checksum
per piece, `<split>/filter/00042.json`.
"""

import base64
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from ... import recipe as R
from ...recipe.data.formats import BadRow, Piece, SourceItem
from ...support.addresses import Location
from ...support.storage import seal_json, unseal_json, write_if_changed
from ..reading.source import read_piece

FOLDER = "filter"
AGAIN = "run weft prepare again"
Reason = tuple[int, str]  # the number of the filter, and what it says


class DropTable(NamedTuple):
    """A code per row: 0 is kept, n is dropped for the n-th reason."""

    fingerprint: str
    reasons: list[Reason]
    dropped: np.ndarray  # uint8

    def row_counts(self) -> Counter[Reason]:
        numbers = np.bincount(self.dropped, minlength=len(self.reasons) + 1)[1:]
        return Counter(dict(zip(self.reasons, numbers.tolist(), strict=True)))

    def to_json(self) -> dict[str, Any]:
        return {
            "fingerprint": self.fingerprint,
            "rows": len(self.dropped),
            "reasons": self.reasons,
            "dropped": base64.b64encode(self.dropped.tobytes()).decode(),
        }


def table_path(split: Location, number: int, suffix: str = ".json") -> Location:
    return split / FOLDER / f"{number:05d}{suffix}"


def write_drop_table(path: Location, table: DropTable) -> None:
    write_if_changed(path, seal_json(table.to_json()))


def load_drop_table(path: Location) -> DropTable | None:
    """Return the table in a file; None if it is missing or damaged."""
    try:
        plain = unseal_json(path.read_text())
        reasons = [(step, reason) for step, reason in plain["reasons"]]
        dropped = np.frombuffer(base64.b64decode(plain["dropped"]), np.uint8)
        return DropTable(plain["fingerprint"], reasons, dropped)
    except (OSError, ValueError, KeyError):
        return None


def read_drop_table(split: Location, number: int, suffix: str = ".json") -> DropTable:
    path = table_path(split, number, suffix)
    table = load_drop_table(path)
    if table is None:
        raise ValueError(f"{path} is missing or damaged; {AGAIN}")
    return table


def kept_rows(items: Iterable[SourceItem], dropped: np.ndarray) -> Iterator[SourceItem]:
    """Yield the rows of a piece that are not dropped, and every bad one. A document in several rows
    is one row of the table."""
    number = 0
    open_document = False
    for item in items:
        if isinstance(item, BadRow):
            yield item
            continue
        if number == len(dropped):
            raise ValueError(f"a source has more rows than its filter table; {AGAIN}")
        if not dropped[number]:
            yield item
        open_document = item.continues
        if not open_document:
            number += 1
    if open_document:
        number += 1
    if number != len(dropped):
        raise ValueError(f"a source has fewer rows than its filter table; {AGAIN}")


class PieceReader:
    """Reads the rows of a source that are kept, and every bad one."""

    def __init__(self, source: R.Source, row: R.RowSchema, split: Location) -> None:
        self.source = source
        self.row = row
        self.split = split

    def __call__(
        self, number: int, piece: Piece, columns: tuple[str, ...] = ()
    ) -> Iterator[SourceItem]:
        if not self.source.filters:
            return read_piece(self.source, piece, columns)
        items = read_piece(self.source, piece, self.row.columns)  # as they were filtered
        return kept_rows(items, read_drop_table(self.split, number).dropped)
