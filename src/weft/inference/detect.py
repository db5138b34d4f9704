"""Object detection on files or images, with boxes as plain values."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .. import recipe as R
from ..data.images.boxes import clip_boxes
from ..data.images.images import displayed_size
from ..data.shards.in_memory import InMemoryStore
from ..nn.loaded_model import LoadedModel
from ..tasks.predict import PredictOptions
from ..tasks.task import predict
from .images import ImageInput, encoded_image, with_transforms
from .methods import check_head, label_names, task_as_trained

Box = tuple[float, float, float, float]  # x, y, width, height
DetectedObjects = list[dict[str, Any]]  # per image: `label`, `score` and `box`


class ImageObjects(NamedTuple):
    """The objects detected in one image, sorted by score. A box is x, y, width and height in
    pixels."""

    # As in published evaluations, boxes may exceed the image and have several classes
    scored: DetectedObjects
    size: tuple[int, int]

    def above(self, threshold: float) -> DetectedObjects:
        """Return the objects that score at least `threshold`: per query its best class, and the
        part of its box inside the image."""
        best_class = dict[tuple[float, ...], str]()  # each box belongs to one query
        return [
            thing | {"box": [*box_inside(thing["box"], *self.size)]}
            for thing in self.scored
            if thing["score"] >= threshold
            and best_class.setdefault(tuple(thing["box"]), thing["label"]) == thing["label"]
        ]


def box_inside(box: Sequence[float], width: float, height: float) -> Box:
    """Return the part of a box (x, y, width, height) inside an image."""
    left, top, right, bottom = clip_boxes(np.array([box]), width, height)[0].tolist()
    return left, top, right - left, bottom - top


def detect(
    model: LoadedModel,
    images: Sequence[ImageInput],
    threshold: float = 0.5,
    options: PredictOptions = PredictOptions(),
) -> list[DetectedObjects]:
    """Return, per image, the objects that score at least `threshold`, sorted by score: `label`,
    `score`, and `box` as x, y, width and height in pixels. Each query yields at most one object,
    and boxes are clipped to the image."""
    return [found.above(threshold) for found in detect_all(model, images, options)]


def detect_all(
    model: LoadedModel, images: Sequence[ImageInput], options: PredictOptions = PredictOptions()
) -> list[ImageObjects]:
    """Return, per image, all detections with any score."""
    check_head(model, R.Detection, "recipes/detr.py")
    if not images:
        return []
    names = label_names(model)
    encoded = [encoded_image(image) for image in images]
    rows = [{"image": image, "boxes": [], "labels": []} for image in encoded]
    store = InMemoryStore(rows, R.ImagesWithBoxes(), None, names)
    task = with_transforms(task_as_trained(model, R.Detection), model)
    predictions = predict(model, task, store, options=options)
    return [
        ImageObjects(
            [
                {"label": names[label], "score": score, "box": box}
                for label, score, *box in prediction
            ],
            displayed_size(image),
        )
        for prediction, image in zip(predictions, encoded, strict=True)
    ]
