"""The first images of a table: whether they can be decoded, and how large they are."""

from collections.abc import Sequence

from .. import recipe as R
from ..data.images.images import DecodedWithin, displayed_size
from ..data.reading.image_columns import SAMPLE_IMAGES
from ..data.reading.quarantine import image_bytes
from ..data.reading.table import Table, UsableRows
from ..recipe.data.formats import SourceRow
from .suggestion import COMMENTS

SAMPLE_PIXELS = 1 << 26  # of the sampled images that are decoded, which takes about a second
FEW = 1000  # images
IMAGE_COMMENTS = COMMENTS | {
    "task": "without the flip where left and right differ, as for digits and text",
    "workers": "processes that read the images; more if the wait for data is over 3 %",
}


def sample_images(table: Table, rows: R.RowSchema, classes: Sequence[str]) -> UsableRows:
    """Return those of the first images that training can use; ValueError if more cannot be used
    than may be.
    """
    decoded = DecodedWithin(SAMPLE_PIXELS)
    return table.usable(rows, classes, table.sample(SAMPLE_IMAGES), decoded)


def sizes_of(sample: list[SourceRow], column: str = "image") -> list[tuple[int, int]]:
    """Return width and height of each image."""
    return [displayed_size(image_bytes(row.fields[column])) for row in sample]


def usual_size(sizes: Sequence[tuple[int, int]]) -> str:
    return "{} × {} pixels".format(*sorted(sizes)[len(sizes) // 2])


def warn_if_few(count: int, way_out: str) -> str:
    """Return a warning where a model from random weights learns little."""
    return f"{count:,} images are few to learn from; {way_out}" if count < FEW else ""
