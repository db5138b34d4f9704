"""Conformance of image transforms, called by `check_part`."""

from typing import Any

import numpy as np
from PIL import Image

from .. import recipe as R
from ..support.registry import implementation
from .value import calling, check_value

SEEDS = 20
MARKED = (3, 2, 15, 11)  # left, top, right and bottom of a rectangle in one corner
CONTRAST = 30  # minimum difference between the lightest and the darkest pixel of a visible object
SIDE = 4  # minimum side of a box in pixels for a reliable position
BOXES = ((2.0, 3.0, 30.0, 20.0), (20.0, 10.0, 39.0, 29.0), (0.0, 0.0, 40.0, 30.0))


def check_transform(transform: R.Transform) -> None:
    """Check that a transform is determined by its generator, does not modify its input, keeps boxes
    inside the image, and is deterministic in evaluation.
    """
    check_value(transform)
    name = type(transform).__name__
    assert transform.stage in ("image", "normalize", "array", "mix"), f"{name}.stage is unknown"
    for seed in range(SEEDS):
        for boxes in (None,) if transform.stage == "mix" else (None, np.array(BOXES)):
            check_call(transform, seed, boxes)
        if transform.stage == "image":
            check_boxes_follow(transform, seed)
    replaced = transform.for_evaluation()
    assert R.evaluation_transforms(replaced) == replaced, (
        f"{name}.for_evaluation() is not idempotent"
    )
    for part in replaced:
        results = [pixels_of(call(part, seed, None)[0]) for seed in range(SEEDS)]
        assert all(np.array_equal(results[0], other) for other in results), (
            f"{name}.for_evaluation() is random"
        )


def example(stage: str) -> Any:
    pixels = np.random.default_rng(0).integers(0, 256, (30, 40, 3), np.uint8)
    if stage in ("image", "normalize"):
        return Image.fromarray(pixels)
    return pixels.transpose(2, 0, 1).astype(np.float32)


def pixels_of(image: Any) -> np.ndarray:
    return np.asarray(image)


def call(transform: R.Transform, seed: int, boxes: Any) -> Any:
    """Apply a transform to the example; a mixing transform gets the mirrored example as second
    sample.
    """
    image = example(transform.stage)
    step = implementation(transform)(transform)
    if transform.stage == "mix":
        return step(image, image[..., ::-1], generator(seed))
    return step(image, boxes, generator(seed))


def generator(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def check_call(transform: R.Transform, seed: int, boxes: Any) -> None:
    name = type(transform).__name__
    try:
        with calling(name):
            image, *more = call(transform, seed, boxes)
    except AssertionError as error:
        if boxes is None or not isinstance(error.__cause__, ValueError):
            raise
        return  # the transform declares that it takes no boxes
    again, *_ = call(transform, seed, None if boxes is None else np.array(BOXES))
    assert np.array_equal(pixels_of(image), pixels_of(again)), (
        f"{name} returns different images for the same generator"
    )
    if transform.stage == "mix":
        assert 0 <= more[0] <= 1, f"{name}: the share of the first sample is {more[0]}"
        return
    kind = Image.Image if transform.stage == "image" else np.ndarray
    assert isinstance(image, kind), f"{name} gives {type(image).__name__}, not {kind.__name__}"
    if boxes is None:
        assert all(part is None for part in more), (
            f"{name} returns boxes for an image without boxes"
        )
        return
    assert np.array_equal(boxes, np.array(BOXES)), f"{name} modifies its input boxes"
    check_boxes(name, pixels_of(image), *more)


def check_boxes_follow(transform: R.Transform, seed: int) -> None:
    """Check that a box still surrounds its object, a light rectangle on a dark background."""
    pixels = np.full((30, 40, 3), 40, np.uint8)
    left, top, right, bottom = MARKED
    pixels[top:bottom, left:right] = 220
    step = implementation(transform)(transform)
    try:
        image, boxes, _ = step(Image.fromarray(pixels), np.array([MARKED], float), generator(seed))
    except ValueError:
        return  # the transform declares that it takes no boxes
    light = pixels_of(image).astype(float).mean(-1)
    rows, columns = np.nonzero(light > (light.min() + light.max()) / 2)
    if not len(boxes) or np.ptp(light) < CONTRAST or (boxes[0, 2:] - boxes[0, :2]).min() < SIDE:
        # cropped away, or too small
        return
    seen = np.array([columns.min(), rows.min(), columns.max() + 1, rows.max() + 1])
    assert overlap(boxes[0], seen) > 0.5, (
        f"{type(transform).__name__} moves the image, but a box stays: "
        f"{boxes[0].round(1).tolist()} "
        f"is empty, its object is at {seen.tolist()}"
    )


def overlap(one: np.ndarray, other: np.ndarray) -> float:
    """Intersection over union of two boxes."""
    sides = np.minimum(one[2:], other[2:]) - np.maximum(one[:2], other[:2])
    shared = float(sides.clip(0).prod())
    return shared / (float((one[2:] - one[:2]).prod() + (other[2:] - other[:2]).prod()) - shared)


def check_boxes(name: str, pixels: np.ndarray, boxes: np.ndarray, left: np.ndarray | None) -> None:
    count = len(BOXES) if left is None else len(left)
    assert len(boxes) == count, f"{name}: {len(boxes)} boxes, but the transform reports {count}"
    rows, columns = pixels.shape[:2] if pixels.shape[-1] == 3 else pixels.shape[1:]
    inside = (boxes >= -1e-6).all() and (boxes <= np.array([columns, rows] * 2) + 1e-6).all()
    assert inside, f"{name}: a box is outside the image"
    assert (boxes[:, 2:] > boxes[:, :2]).all(), f"{name}: a box is empty"
