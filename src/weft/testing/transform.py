"""Does a transform of images keep its contract? `check_part` calls it."""

from typing import Any

import numpy as np
from PIL import Image

from .. import recipe as R
from ..registry import implementation
from .value import check_value

SEEDS = 20
BOXES = ((2.0, 3.0, 30.0, 20.0), (20.0, 10.0, 39.0, 29.0), (0.0, 0.0, 40.0, 30.0))


def check_transform(transform: R.Transform) -> None:
    """Check that a transform is decided by its generator alone, leaves its input as it is, keeps boxes inside, and is not random in
    evaluation."""
    check_value(transform)
    name = type(transform).__name__
    assert transform.stage in ("image", "normalize", "array", "mix"), f"{name}.stage is unknown"
    for seed in range(SEEDS):
        for boxes in (None,) if transform.stage == "mix" else (None, np.array(BOXES)):
            check_call(transform, seed, boxes)
    replaced = transform.for_evaluation()
    assert R.evaluation_transforms(replaced) == replaced, (
        f"{name}.for_evaluation() gives what is replaced again"
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
    """What it makes of the example; one that mixes gets the example mirrored as the second."""
    image, step = example(transform.stage), implementation(transform)(transform)
    if transform.stage == "mix":
        return step(image, image[..., ::-1], np.random.default_rng(seed))
    return step(image, boxes, np.random.default_rng(seed))


def check_call(transform: R.Transform, seed: int, boxes: Any) -> None:
    name = type(transform).__name__
    try:
        image, *more = call(transform, seed, boxes)
    except ValueError:
        if boxes is None:
            raise
        return  # it says that it takes no boxes
    again, *_ = call(transform, seed, None if boxes is None else np.array(BOXES))
    assert np.array_equal(pixels_of(image), pixels_of(again)), (
        f"{name} gives another image for the same generator"
    )
    if transform.stage == "mix":
        assert 0 <= more[0] <= 1, f"{name}: the share of the first sample is {more[0]}"
        return
    kind = Image.Image if transform.stage == "image" else np.ndarray
    assert isinstance(image, kind), f"{name} gives {type(image).__name__}, not {kind.__name__}"
    if boxes is None:
        assert more == [None, None], f"{name} makes boxes where there are none"
        return
    assert np.array_equal(boxes, np.array(BOXES)), f"{name} changes the boxes that it was given"
    check_boxes(name, pixels_of(image), *more)


def check_boxes(name: str, pixels: np.ndarray, boxes: np.ndarray, left: np.ndarray | None) -> None:
    count = len(BOXES) if left is None else len(left)
    assert len(boxes) == count, f"{name}: {len(boxes)} boxes, but {count} are said to be left"
    rows, columns = pixels.shape[:2] if pixels.shape[-1] == 3 else pixels.shape[1:]
    inside = (boxes >= -1e-6).all() and (boxes <= np.array([columns, rows] * 2) + 1e-6).all()
    assert inside, f"{name}: a box is outside of the image"
    assert (boxes[:, 2:] > boxes[:, :2]).all(), f"{name}: a box is empty"
