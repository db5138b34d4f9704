"""Samples of images with boxes, checked before training."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ... import recipe as R
from ...recipe.data.cells import check_box_units, check_boxes
from ..batches.samples import RowSamples, Sample
from ..shards.store import Store
from .images import decode, displayed_size
from .transforms import ImagePipeline

Floats = NDArray[np.floating]
CHECKED = 256  # evenly spaced rows whose boxes are checked against their image before training


class BoxSamples(RowSamples):
    """Rows with an image and its boxes, as x, y, width and height in pixels."""

    def __init__(
        self,
        store: Store,
        classes: int,
        transforms: Sequence[R.Transform] | None = None,
        queries: int | None = None,
    ) -> None:
        super().__init__(store)
        self.pipeline = ImagePipeline((R.Normalize(),) if transforms is None else transforms)
        self.queries = queries
        boxes = list[list[float]]()
        for i in range(0, len(store), max(1, len(store) // CHECKED)):
            sample = self[i]
            check_sample(i, sample, classes)
            boxes.extend(np.asarray(sample["boxes"], float).reshape(-1, 4).tolist())
        check_box_units(boxes)

    def __getitem__(self, i: int) -> Sample:
        """Return a row. ValueError for more objects than queries is raised on access, since
        checking all rows would read all data.
        """
        sample = super().__getitem__(i)
        objects = len(sample["labels"])
        if self.queries is not None and objects > self.queries:
            raise ValueError(
                f"sample {i} has {objects} objects, but the model has {self.queries} queries; use "
                f"replace(target, count={objects}) or more"
            )
        return sample


def check_sample(index: int, sample: Sample, classes: int) -> None:
    """Raise ValueError for a sample with an unknown class or a box outside its image."""
    labels = np.asarray(sample["labels"])
    wrong = labels[(labels < 0) | (labels >= classes)]
    if len(wrong):
        raise ValueError(
            f"sample {index} has class {wrong[0]}, but the head has classes 0 to {classes - 1}; "
            "prepare the data again, or use replace(head, num_labels=…)"
        )
    boxes = np.asarray(sample["boxes"], float).reshape(-1, 4).tolist()
    try:
        check_boxes(boxes, displayed_size(sample["image"]))
    except ValueError as error:
        raise ValueError(f"sample {index}: {error}") from None


def clip_boxes(boxes_N4: Floats, width: float, height: float) -> Floats:
    """x, y, width and height -> left, top, right and bottom inside the image."""
    corners = np.concatenate((boxes_N4[:, :2], boxes_N4[:, :2] + boxes_N4[:, 2:]), 1)
    return corners.clip(0, (width, height, width, height))


def relative_boxes(corners_N4: Floats, width: int, height: int) -> Floats:
    """Left, top, right and bottom in pixels -> centre x, y, width and height as fractions of the
    image."""
    low = corners_N4[:, :2]
    high = corners_N4[:, 2:]
    return np.concatenate(((low + high) / 2, high - low), 1) / (width, height, width, height)


def decode_boxed(sample: Sample, channels: int) -> tuple[Image.Image, Floats]:
    """The image of a sample, and its boxes as corners inside it."""
    image = decode(sample["image"], channels)
    boxes_N4 = np.asarray(sample["boxes"], np.float64).reshape(-1, 4)
    return image, clip_boxes(boxes_N4, *image.size)
