"""Data sets of the Hugging Face hub."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from ....recipe import Source
from ....recipe.data.formats import BadRow, Format, Piece, SourceItem, SourceRow, Span
from ....support.extras import install_extra
from .base import ROWS_PER_READ, stretch, unnest_translation
from .class_labels import ClassNames, name_classes, names_of_columns


class HubFormat(Format):
    """`Source.paths` are names of data sets: `name`, `name:split` or `name:config:split`."""

    name = "hub"
    offset_unit = "row"

    def pieces(self, source: Source, piece_bytes: int) -> list[Piece]:
        return [
            piece
            for path in source.paths
            for piece in hub_pieces(path, source.fraction, piece_bytes)
        ]

    def class_names(self, source: Source, pieces: list[Piece], column: str) -> Sequence[str] | None:
        names = [hub_class_names(path).get(column) for path in source.paths]
        return names[0] if all(of_data == names[0] for of_data in names) else None

    def read(
        self, piece: Piece, source: Source, columns: tuple[str, ...] = ()
    ) -> Iterator[SourceItem]:
        return read_hub(piece.paths[0], piece.spans[0])


@lru_cache(maxsize=4)
def load_hub_dataset(path: str) -> Any:
    """Load `name`, `name:split` or `name:config:split`."""
    try:
        import datasets
    except ImportError:
        raise ValueError(
            f"{path}: data sets of the hub need the extra: {install_extra('hub')}"
        ) from None
    name, *rest = path.split(":")
    split = rest[-1] if rest else "train"
    config = rest[0] if len(rest) == 2 else None
    data = datasets.load_dataset(name, config, split=split)
    for column, kind in data.features.items():  # an image as its bytes, not as pixels
        if type(kind).__name__ == "Image":
            data = data.cast_column(column, datasets.Image(decode=False))
    return data


def hub_class_names(path: str) -> ClassNames:
    return names_of_columns(load_hub_dataset(path).features.to_dict())


def read_hub(path: str, span: Span) -> Iterator[SourceItem]:
    data = load_hub_dataset(path)
    names = hub_class_names(path)
    end = len(data) if span[1] is None else span[1]
    for first in range(span[0], end, ROWS_PER_READ):
        columns = data[first : min(end, first + ROWS_PER_READ)]
        for i, cells in enumerate(zip(*columns.values(), strict=True)):
            fields = dict(zip(columns, cells, strict=True))
            try:
                yield SourceRow(first + i, unnest_translation(name_classes(fields, names)))
            except ValueError as error:  # a number without a name
                yield BadRow(first + i, str(error))


def hub_pieces(path: str, fraction: tuple[float, float], piece_bytes: int) -> list[Piece]:
    data = load_hub_dataset(path)
    begin, end = stretch(len(data), fraction)
    step = max(1, piece_bytes * len(data) // max(1, data.data.nbytes))
    return [
        Piece((path,), ((a, min(a + step, end)),), piece_bytes, str(data._fingerprint))
        for a in range(begin, end, step)
    ]


HUB = HubFormat()
