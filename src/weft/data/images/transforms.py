"""Image transforms with Pillow and numpy: the implementations of `weft.recipe.transforms`. An image
is a PIL image until it is normalised.

Boxes are corners x1 y1 x2 y2 in pixels, (N, 4), or None; they are transformed with their image.
"""

from collections.abc import Sequence
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ... import recipe as R
from ...recipe.transforms import check_order
from ...support.registry import implementation
from .images import MAX_PIXELS, TRIES, crop_box, fitting_boxes, normalise

PixelArray = NDArray[np.float32]  # (channels, rows, columns)
BoxArray = NDArray[Any] | None  # (N, 4)
BoxIndices = NDArray[np.int64] | None  # indices of the boxes that are left; None: all
Transformed = tuple[Any, BoxArray, BoxIndices]
Generator = np.random.Generator
INTERPOLATION = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
}


class ImagePipeline:
    """Transforms one after another, from a PIL image to pixels. Without `Normalize`, pixels are
    from 0 to 1."""

    def __init__(self, transforms: Sequence[R.Transform]) -> None:
        check_order(transforms)
        mixing = [transform for transform in transforms if transform.stage == "mix"]
        steps = [transform for transform in transforms if transform.stage != "mix"]
        if not any(transform.stage == "normalize" for transform in steps):
            before = sum(transform.stage == "image" for transform in steps)
            steps.insert(before, R.Normalize(mean=(0.0,) * 3, std=(1.0,) * 3))
        self.steps = [implementation(transform)(transform) for transform in steps]
        self.mix = implementation(mixing[0])(mixing[0]) if mixing else None

    def __call__(
        self, image: Image.Image, boxes_N4: BoxArray, rng: Generator
    ) -> tuple[PixelArray, BoxArray, BoxIndices]:
        """The pixels, the boxes that are left, and which of the boxes these are."""
        return apply_all(self.steps, image, boxes_N4, rng)


def apply_all(steps: Sequence[Any], image: Any, boxes_N4: BoxArray, rng: Generator) -> Transformed:
    keep_N = None if boxes_N4 is None else np.arange(len(boxes_N4))
    for step in steps:
        image, boxes_N4, left_N = step(image, boxes_N4, rng)
        if keep_N is not None and left_N is not None:
            keep_N = keep_N[left_N]
    return image, boxes_N4, keep_N


# Size and place


def resized_sides(
    width: int, height: int, size: int | tuple[int, int], max_size: int | None
) -> tuple[int, int]:
    """Columns and rows after a resize. Rounded down, as torchvision and transformers do.

    Raises:
        ValueError: if a thin image would fill the memory.
    """
    if isinstance(size, tuple):
        return size[1], size[0]
    short = min(width, height)
    long = max(width, height)
    new_short = size
    new_long = int(size * long / short)
    if max_size is not None and new_long > max_size:
        new_short = max(1, int(max_size * short / long))
        new_long = max_size
    if new_short * new_long > MAX_PIXELS:
        raise ValueError(
            f"an image of {width} × {height} pixels would have {new_short * new_long:,} pixels "
            f"after a resize of its shorter side to {new_short}; give max_size, or remove the image"
        )
    return (new_short, new_long) if width <= height else (new_long, new_short)


def resize(
    image: Image.Image, boxes_N4: BoxArray, sides: tuple[int, int], interpolation: str
) -> Transformed:
    if boxes_N4 is not None:
        scale_x = sides[0] / image.width
        scale_y = sides[1] / image.height
        boxes_N4 = boxes_N4 * np.array((scale_x, scale_y, scale_x, scale_y), boxes_N4.dtype)
    resized = image if image.size == sides else image.resize(sides, INTERPOLATION[interpolation])
    return resized, boxes_N4, None


def crop(
    image: Image.Image, boxes_N4: BoxArray, left: int, top: int, sides: tuple[int, int]
) -> Transformed:
    """Return a crop of the image, black outside of it; boxes are clipped at its edges and removed
    if outside.
    """
    width, height = sides
    part = image.crop((left, top, left + width, top + height))
    if boxes_N4 is None:
        return part, None, None
    shifted = boxes_N4 - np.array((left, top, left, top), boxes_N4.dtype)
    cut = np.clip(shifted, 0, np.array((width, height, width, height), boxes_N4.dtype))
    left_N = np.flatnonzero((cut[:, 2] > cut[:, 0]) & (cut[:, 3] > cut[:, 1]))
    return part, cut[left_N], left_N


class ResizeTransform:
    def __init__(self, value: R.Resize) -> None:
        self.value = value

    def __call__(self, image: Image.Image, boxes_N4: BoxArray, rng: Generator) -> Transformed:
        sides = resized_sides(*image.size, self.value.size, self.value.max_size)
        return resize(image, boxes_N4, sides, self.value.interpolation)


class RandomShortestSizeTransform:
    def __init__(self, value: R.RandomShortestSize) -> None:
        self.value = value

    def __call__(self, image: Image.Image, boxes_N4: BoxArray, rng: Generator) -> Transformed:
        size = self.value.min_size[rng.integers(len(self.value.min_size))]
        sides = resized_sides(*image.size, size, self.value.max_size)
        return resize(image, boxes_N4, sides, self.value.interpolation)


class CenterCropTransform:
    def __init__(self, value: R.CenterCrop) -> None:
        self.size = value.size

    def __call__(self, image: Image.Image, boxes_N4: BoxArray, rng: Generator) -> Transformed:
        left, top = ((side - self.size) // 2 for side in image.size)
        return crop(image, boxes_N4, left, top, (self.size, self.size))


class RandomCropTransform:
    def __init__(self, value: R.RandomCrop) -> None:
        self.size = value.size
        self.padding = value.padding

    def __call__(self, image: Image.Image, boxes_N4: BoxArray, rng: Generator) -> Transformed:
        size = self.size
        padding = self.padding
        if padding and image.size != (size, size):  # evaluation sees the whole image, not a part
            raise ValueError(
                f"RandomCrop(size={size}, padding={padding}) needs images of {size} × {size} "
                f"pixels, not {image.width} × {image.height}; put Resize(size=({size}, {size})) "
                "before it, or use padding=0"
            )
        room = [side + 2 * padding - size for side in image.size]
        if min(room) < 0:
            raise ValueError(
                f"RandomCrop.size = {size} exceeds an image of {image.width} × {image.height} "
                "pixels; put Resize before it"
            )
        left, top = (int(rng.integers(r + 1)) - padding for r in room)
        return crop(image, boxes_N4, left, top, (size, size))


class RandomSizeCropTransform:
    def __init__(self, value: R.RandomSizeCrop) -> None:
        self.value = value

    def __call__(self, image: Image.Image, boxes_N4: BoxArray, rng: Generator) -> Transformed:
        width, height = (
            int(rng.integers(min(side, self.value.min_size), min(side, self.value.max_size) + 1))
            for side in image.size
        )
        left, top = (
            int(rng.integers(side - part + 1))
            for side, part in zip(image.size, (width, height), strict=True)
        )
        return crop(image, boxes_N4, left, top, (width, height))


class RandomResizedCropTransform:
    def __init__(self, value: R.RandomResizedCrop) -> None:
        self.value = value

    def __call__(self, image: Image.Image, boxes_N4: BoxArray, rng: Generator) -> Transformed:
        value = self.value
        left, top, right, bottom = crop_box(
            *image.size, rng.random((TRIES, 4)), value.scale, value.ratio
        ).tolist()
        part, boxes_N4, left_N = crop(image, boxes_N4, left, top, (right - left, bottom - top))
        resized, boxes_N4, _ = resize(part, boxes_N4, (value.size,) * 2, value.interpolation)
        return resized, boxes_N4, left_N


class RandomHorizontalFlipTransform:
    def __init__(self, value: R.RandomHorizontalFlip) -> None:
        self.p = value.p

    def __call__(self, image: Image.Image, boxes_N4: BoxArray, rng: Generator) -> Transformed:
        if rng.random() >= self.p:
            return image, boxes_N4, None
        if boxes_N4 is not None:
            boxes_N4 = boxes_N4[:, [2, 1, 0, 3]]
            boxes_N4[:, [0, 2]] = image.width - boxes_N4[:, [0, 2]]
        return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT), boxes_N4, None


# Numbers


class NormalizeTransform:
    def __init__(self, value: R.Normalize) -> None:
        self.mean = value.mean
        self.std = value.std

    def __call__(self, image: Image.Image, boxes_N4: BoxArray, rng: Generator) -> Transformed:
        return normalise(image, self.mean, self.std), boxes_N4, None


class RandomErasingTransform:
    def __init__(self, value: R.RandomErasing) -> None:
        self.value = value

    def __call__(self, pixels: PixelArray, boxes_N4: BoxArray, rng: Generator) -> Transformed:
        value = self.value
        (channels, rows, columns) = pixels.shape
        if rng.random() >= value.p:
            return pixels, boxes_N4, None
        boxes, fits = fitting_boxes(columns, rows, rng.random((TRIES, 4)), value.scale, value.ratio)
        if fits.any():
            left, top, right, bottom = boxes[fits.argmax()]
            shape = (channels, bottom - top, right - left)
            pixels[:, top:bottom, left:right] = (
                rng.standard_normal(shape, np.float32) if value.value == "random" else value.value
            )
        return pixels, boxes_N4, None


# Two samples


class MixUpTransform:
    def __init__(self, value: R.MixUp) -> None:
        self.alpha = value.alpha

    def __call__(
        self, pixels: PixelArray, other: PixelArray, rng: Generator
    ) -> tuple[PixelArray, float]:
        """The mixed pixels, and the share of the first."""
        share = np.float32(rng.beta(self.alpha, self.alpha))
        return share * pixels + (1 - share) * other, float(share)


class CutMixTransform:
    def __init__(self, value: R.CutMix) -> None:
        self.alpha = value.alpha

    def __call__(
        self, pixels: PixelArray, other: PixelArray, rng: Generator
    ) -> tuple[PixelArray, float]:
        """The first with a rectangle of the other, and the share of the first that is left."""
        rows, columns = pixels.shape[1:]
        side = sqrt(1 - rng.beta(self.alpha, self.alpha))
        middle_x = rng.integers(columns)
        middle_y = rng.integers(rows)
        half_x = int(columns * side) // 2
        half_y = int(rows * side) // 2
        left = max(0, middle_x - half_x)
        right = min(columns, middle_x + half_x)
        top = max(0, middle_y - half_y)
        bottom = min(rows, middle_y + half_y)
        mixed = pixels.copy()
        mixed[:, top:bottom, left:right] = other[:, top:bottom, left:right]
        return mixed, 1 - (bottom - top) * (right - left) / (rows * columns)


# Of several


class RandomChoiceTransform:
    def __init__(self, value: R.RandomChoice) -> None:
        self.choices = [implementation(part)(part) for part in value.transforms]

    def __call__(self, image: Any, other: Any, rng: Generator) -> Any:
        """`other` are boxes or, of what mixes, the second sample's pixels."""
        return self.choices[rng.integers(len(self.choices))](image, other, rng)


class RandomApplyTransform:
    def __init__(self, value: R.RandomApply) -> None:
        self.steps = [implementation(part)(part) for part in value.transforms]
        self.p = value.p

    def __call__(self, image: Any, boxes_N4: BoxArray, rng: Generator) -> Transformed:
        if rng.random() >= self.p:
            return image, boxes_N4, None
        return apply_all(self.steps, image, boxes_N4, rng)
