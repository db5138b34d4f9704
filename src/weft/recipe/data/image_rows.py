"""Row schemas for images."""

from itertools import chain
from typing import Any

from ...support.registry import choice, implements
from .cells import check_boxes, is_number, label_index, number, require_cell
from .rows import RowSchema


@choice
class LabelledImages(RowSchema):
    """An image and its class.

    Args:
        image: the column of the image (default: "image").
        label: the column of the class (default: "label").
        labels: the names of the classes in order (default: sorted, from the training data).
    """

    name = "images"
    column_fields = ("image", "label")

    image: str = "image"
    label: str = "label"
    labels: tuple[str, ...] | None = None

    @property
    def image_columns(self) -> tuple[str, ...]:
        return (self.image,)

    @property
    def label_column(self) -> str:
        return self.label

    def check(self, fields: dict[str, Any], labels: tuple[str, ...]) -> None:
        label_index(labels, require_cell(fields, self.label, object))


@choice
class ImagesWithBoxes(RowSchema):
    """An image and its boxes, as in COCO. If a row has `width` and `height`, the image must have
    that size.

    Args:
        labels: the names of the classes in order (default: sorted, from the training data).
    """

    name = "boxed"

    labels: tuple[str, ...] | None = None

    @property
    def image_columns(self) -> tuple[str, ...]:
        return ("image",)

    @property
    def columns(self) -> tuple[str, ...]:
        return "image", "boxes", "labels"

    @property
    def label_column(self) -> str:
        return "labels"

    def check(self, fields: dict[str, Any], labels: tuple[str, ...]) -> None:
        boxes = fields.get("boxes", [])
        names = fields.get("labels", [])
        if len(boxes) != len(names) or any(len(box) != 4 or isinstance(box, str) for box in boxes):
            raise ValueError(
                f"{len(boxes)} boxes and {len(names)} labels; give four numbers and a label per box"
            )
        for side in chain(*boxes):
            number("a box's side", side)
        for name in names:
            label_index(labels, name)

    def check_image(self, fields: dict[str, Any], size: tuple[int, int]) -> None:
        width = fields.get("width", 0)
        height = fields.get("height", 0)
        is_size = all(is_number(side) and float(side) > 0 for side in (width, height))
        if is_size and (float(width), float(height)) != size:
            raise ValueError(
                f"the image has {size[0]}×{size[1]} pixels as displayed, but its row says "
                f"{width}×{height}; correct width and height, or the orientation in its EXIF"
            )
        check_boxes(fields.get("boxes", []), size)

    def default_format(self, paths: tuple[str, ...]) -> str:
        return "coco"


implements(LabelledImages, "weft.data.shards.encode:ImageEncoder")
implements(ImagesWithBoxes, "weft.data.shards.encode:BoxEncoder")
