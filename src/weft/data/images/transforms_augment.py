"""Operations of RandAugment, AutoAugment and colour jitter, with Pillow."""

from collections.abc import Callable
from math import ceil
from typing import Any

import numpy as np
from PIL import Image, ImageEnhance, ImageOps

from ... import recipe as R
from .transforms import BoxArray, Generator, Transformed

Operation = Callable[[Image.Image, float], Image.Image]
AFFINE = Image.Transform.AFFINE


def shear_x(image: Image.Image, slope: float) -> Image.Image:
    return image.transform(image.size, AFFINE, (1, slope, 0, 0, 1, 0))


def shear_y(image: Image.Image, slope: float) -> Image.Image:
    return image.transform(image.size, AFFINE, (1, 0, 0, slope, 1, 0))


def translate_x(image: Image.Image, share: float) -> Image.Image:
    return image.transform(image.size, AFFINE, (1, 0, int(share * image.width), 0, 1, 0))


def translate_y(image: Image.Image, share: float) -> Image.Image:
    return image.transform(image.size, AFFINE, (1, 0, 0, 0, 1, int(share * image.height)))


def rotate(image: Image.Image, degrees: float) -> Image.Image:
    return image.rotate(degrees)


def brightness(image: Image.Image, change: float) -> Image.Image:
    return ImageEnhance.Brightness(image).enhance(1 + change)


def color(image: Image.Image, change: float) -> Image.Image:
    return ImageEnhance.Color(image).enhance(1 + change)


def contrast(image: Image.Image, change: float) -> Image.Image:
    return ImageEnhance.Contrast(image).enhance(1 + change)


def sharpness(image: Image.Image, change: float) -> Image.Image:
    return ImageEnhance.Sharpness(image).enhance(1 + change)


def posterize(image: Image.Image, fewer: float) -> Image.Image:
    return ImageOps.posterize(image, 8 - round(fewer))


def solarize(image: Image.Image, share: float) -> Image.Image:
    return ImageOps.solarize(image, ceil(255 * (1 - share)))


def identity(image: Image.Image, _: float) -> Image.Image:
    return image


def auto_contrast(image: Image.Image, _: float) -> Image.Image:
    return ImageOps.autocontrast(image)


def equalize(image: Image.Image, _: float) -> Image.Image:
    return ImageOps.equalize(image)


def invert(image: Image.Image, _: float) -> Image.Image:
    return ImageOps.invert(image)


# An operation, the strength of its largest magnitude, and whether it goes both ways
# (arXiv:1805.09501, table 6; the ranges are torchvision's).
OPERATIONS: dict[str, tuple[Operation, float, bool]] = {
    "Identity": (identity, 0.0, False),
    "ShearX": (shear_x, 0.3, True),
    "ShearY": (shear_y, 0.3, True),
    "TranslateX": (translate_x, 150 / 331, True),
    "TranslateY": (translate_y, 150 / 331, True),
    "Rotate": (rotate, 30.0, True),
    "Brightness": (brightness, 0.9, True),
    "Color": (color, 0.9, True),
    "Contrast": (contrast, 0.9, True),
    "Sharpness": (sharpness, 0.9, True),
    "Posterize": (posterize, 4.0, False),
    "Solarize": (solarize, 1.0, False),
    "AutoContrast": (auto_contrast, 0.0, False),
    "Equalize": (equalize, 0.0, False),
    "Invert": (invert, 0.0, False),
}
RANDOM_OPERATIONS = [name for name in OPERATIONS if name != "Invert"]

# arXiv:1805.09501, table 7: operation, probability and magnitude from 0 to 9, twice.
CIFAR10_POLICY = """
Invert 0.1 0, Contrast 0.2 6
Rotate 0.7 2, TranslateX 0.3 9
Sharpness 0.8 1, Sharpness 0.9 3
ShearY 0.5 8, TranslateY 0.7 9
AutoContrast 0.5 0, Equalize 0.9 0
ShearY 0.2 7, Posterize 0.3 7
Color 0.4 3, Brightness 0.6 7
Sharpness 0.3 9, Brightness 0.7 9
Equalize 0.6 0, Equalize 0.5 0
Contrast 0.6 7, Sharpness 0.6 5
Color 0.7 7, TranslateX 0.5 8
Equalize 0.3 0, AutoContrast 0.4 0
TranslateY 0.4 3, Sharpness 0.2 6
Brightness 0.9 6, Color 0.2 8
Solarize 0.5 2, Invert 0.0 0
Equalize 0.2 0, AutoContrast 0.6 0
Equalize 0.2 0, Equalize 0.6 0
Color 0.9 9, Equalize 0.6 0
AutoContrast 0.8 0, Solarize 0.2 8
Brightness 0.1 3, Color 0.7 0
Solarize 0.4 5, AutoContrast 0.9 0
TranslateY 0.9 9, TranslateY 0.7 9
AutoContrast 0.9 0, Solarize 0.8 3
Equalize 0.8 0, Invert 0.1 0
TranslateY 0.7 9, AutoContrast 0.9 0
"""


def parse_policy(text: str) -> list[list[tuple[str, float, int]]]:
    rows = [row.split(",") for row in text.strip().splitlines()]
    parts = [[operation.split() for operation in row] for row in rows]
    return [[(name, float(p), int(bin_)) for name, p, bin_ in row] for row in parts]


POLICIES = {"cifar10": parse_policy(CIFAR10_POLICY)}


def apply_operation(image: Image.Image, name: str, magnitude: float, rng: Generator) -> Image.Image:
    """`magnitude` is a share of the largest; where an operation goes both ways, a coin decides."""
    operation, largest, signed = OPERATIONS[name]
    sign = -1 if signed and rng.random() < 0.5 else 1
    return operation(image, sign * magnitude * largest)


class RandAugmentTransform:
    def __init__(self, value: R.RandAugment) -> None:
        self.num_ops = value.num_ops
        self.magnitude = value.magnitude / (value.num_magnitude_bins - 1)

    def __call__(self, image: Image.Image, boxes_N4: BoxArray, rng: Generator) -> Transformed:
        refuse_boxes("RandAugment", boxes_N4)
        for number in rng.integers(len(RANDOM_OPERATIONS), size=self.num_ops).tolist():
            image = apply_operation(image, RANDOM_OPERATIONS[number], self.magnitude, rng)
        return image, None, None


class AutoAugmentTransform:
    def __init__(self, value: R.AutoAugment) -> None:
        self.policy = POLICIES[value.policy]

    def __call__(self, image: Image.Image, boxes_N4: BoxArray, rng: Generator) -> Transformed:
        refuse_boxes("AutoAugment", boxes_N4)
        for name, p, magnitude in self.policy[rng.integers(len(self.policy))]:
            if rng.random() < p:
                image = apply_operation(image, name, magnitude / 9, rng)
        return image, None, None


def refuse_boxes(name: str, boxes_N4: Any) -> None:
    if boxes_N4 is not None:
        raise ValueError(f"{name} does not support boxes; use ColorJitter")


class ColorJitterTransform:
    """The order of the four is drawn too."""

    def __init__(self, value: R.ColorJitter) -> None:
        self.factors = (
            (ImageEnhance.Brightness, value.brightness),
            (ImageEnhance.Contrast, value.contrast),
            (ImageEnhance.Color, value.saturation),
        )
        self.hue = value.hue

    def __call__(self, image: Image.Image, boxes_N4: BoxArray, rng: Generator) -> Transformed:
        for number in rng.permutation(4).tolist():
            if number == 3:
                image = shift_hue(image, rng.uniform(-self.hue, self.hue)) if self.hue else image
                continue
            enhance, change = self.factors[number]
            if change:
                factor = rng.uniform(max(0.0, 1 - change), 1 + change)
                image = enhance(image).enhance(factor)
        return image, boxes_N4, None


def shift_hue(image: Image.Image, share: float) -> Image.Image:
    """Colours turned by a share of the colour circle; grey has no hue."""
    if image.mode == "L":
        return image
    hue, saturation, value = image.convert("HSV").split()
    turned = (np.asarray(hue).astype(np.int16) + round(share * 255)) % 256
    bands = (Image.fromarray(turned.astype(np.uint8)), saturation, value)
    return Image.merge("HSV", bands).convert(image.mode)
