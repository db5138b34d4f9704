"""Detection of image columns and their class columns."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from ... import recipe as R
from ...recipe.data.formats import Fields
from ..images.images import displayed_size
from .column_names import IMAGE_COLUMNS, LABEL_COLUMNS, find_column, require_column
from .quarantine import image_bytes

SAMPLE_IMAGES = 100
COLUMNS_OPTION = "--columns IMAGE LABEL"


def infer_labelled_images(
    row: R.LabelledImages, rows: Sequence[Fields], images: Sequence[str], label: str | None
) -> R.LabelledImages:
    """Return `row` with the columns of a table; those that are not given are detected."""
    if len(images) > 1:
        columns = ", ".join(map(repr, images))
        raise ValueError(f"one column of images is read, not {columns}; give {COLUMNS_OPTION}")
    fields = rows[0]
    image = next(iter(images), None) or find_image_column(rows, list(fields))
    image = require_column(fields, image, "image", COLUMNS_OPTION)
    label = label or find_column(fields, LABEL_COLUMNS, [image])
    label = require_column(fields, label, "label", COLUMNS_OPTION)
    check_column_order(rows, image, label)
    return replace(row, image=image, label=label)


def check_column_order(rows: Sequence[Fields], image: str, label: str) -> None:
    """Raise ValueError if it is the column of labels that holds the images."""
    sample = rows[:SAMPLE_IMAGES]
    holds_images = (any(is_image(fields.get(name)) for fields in sample) for name in (image, label))
    if tuple(holds_images) == (False, True):
        raise ValueError(
            f"column {label!r} contains images, but {image!r} does not; give --columns {label} "
            f"{image}"
        )


def find_image_column(rows: Sequence[Fields], names: Sequence[str]) -> str | None:
    """Return a column that holds images, else one that seems to: by its name, or as the `datasets`
    library wraps images."""
    names = sorted(names, key=lambda name: name.lower() not in IMAGE_COLUMNS)
    sample = rows[:SAMPLE_IMAGES]
    readable = (name for name in names if any(is_image(fields.get(name)) for fields in sample))
    likely = (name for name in names if looks_like_images(name, rows[0][name]))
    return next(readable, None) or next(likely, None)


def is_image(cell: Any) -> bool:
    """Return whether a cell begins as an image does; its pixels are not read."""
    with suppress(Exception):  # damaged bytes make Pillow raise errors of every kind
        displayed_size(image_bytes(cell))
        return True
    return False


def looks_like_images(name: str, cell: Any) -> bool:
    if isinstance(cell, bytes):
        return name.lower() in IMAGE_COLUMNS
    return isinstance(cell, dict) and (
        isinstance(cell.get("bytes"), bytes) or set(cell) == {"bytes", "path"}
    )
