"""Samples of the first images of a table, for checks and sizes."""

from collections.abc import Sequence

from .. import recipe as R
from ..data.images.images import DecodedWithin, displayed_size
from ..data.reading.image_columns import SAMPLE_IMAGES
from ..data.reading.quarantine import image_bytes
from ..data.reading.table import Table, UsableRows
from ..recipe.data.formats import SourceRow
from .suggestion import COMMENTS

SAMPLE_PIXELS = 1 << 26  # limit of decoded pixels, about one second
FEW = 1000  # images
IMAGE_COMMENTS = COMMENTS | {
    "task": "remove the flip if left and right differ, as for digits and text",
    "workers": "processes that read images; increase if waiting for data takes over 3 %",
}


def sample_images(table: Table, rows: R.RowSchema, classes: Sequence[str]) -> UsableRows:
    """Return the usable rows among the first images; raise ValueError if too many are unusable."""
    decoded = DecodedWithin(SAMPLE_PIXELS)
    return table.usable(rows, classes, table.sample(SAMPLE_IMAGES), decoded)


def sizes_of(sample: list[SourceRow], column: str = "image") -> list[tuple[int, int]]:
    """Return the width and height of each image."""
    return [displayed_size(image_bytes(row.fields[column])) for row in sample]


def usual_size(sizes: Sequence[tuple[int, int]]) -> str:
    return "{} × {} pixels".format(*sorted(sizes)[len(sizes) // 2])


def warn_if_few(count: int, fix: str) -> str:
    """Return a warning if a model with random weights has too few images."""
    return (
        f"{count:,} images are few for training from random weights; {fix}" if count < FEW else ""
    )
