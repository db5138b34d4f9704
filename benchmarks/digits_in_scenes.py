"""Generate a small detection dataset: images of digits with boxes in COCO's layout, for training on
two cores.

    # 15,000 scenes to train on, 1,000 held out
    python -m benchmarks.digits_in_scenes DATA/digits_in_scenes
    python -m benchmarks.digits_in_scenes FOLDER --train 200 --valid 50 --seed 1
    # for recipes/tables/detr.py
    python -m benchmarks.digits_in_scenes DATA/digits_in_small_scenes --side 64 --most 3 \
        --train 8000 --valid 500

A scene is 128 × 128 pixels: a textured background, clutter (lines, ellipses, letters), and up to
eight digits of any size, angle, slant, weight and colour, which may cover each other in part;
--side and --most change both numbers. Each scene is a pure function of (seed, split, number), side
and most.
"""

import argparse
import json
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from . import command

SIDE = 128
SMALLEST = 20  # font of a digit, about 1.4 times its height in pixels
LARGEST = 0.5625  # the same, of the scene's side
LEAST_SIDE = 48
SOLID = 96  # of 255: from here on a pixel of a mask is ink
MOST = 8  # digits of a scene
COVERED = 0.35  # of a digit, by later ones, at most
LETTERS = "ACEFHKMNPRTWXY#%&?"  # none that could be read as a digit
SPLITS = {"train": 0, "valid": 1}


@lru_cache(maxsize=256)
def glyph(text: str, size: int, stroke: int) -> Image.Image:
    """The mask of a character, upright and tight."""
    font = ImageFont.load_default(size)
    left, top, right, bottom = font.getbbox(text, stroke_width=stroke)
    mask = Image.new("L", (int(right - left) + 2, int(bottom - top) + 2))
    draw = ImageDraw.Draw(mask)
    draw.text((1 - left, 1 - top), text, fill=255, font=font, stroke_width=stroke)
    return mask.crop(mask.getbbox())


def turned(mask: Image.Image, angle: float, slant: float, stretch: float) -> Image.Image:
    """The mask sheared, widened and turned, tight again."""
    width, height = mask.size
    shift = abs(slant) * height
    wide = (max(2, round((width + shift) * stretch)), height)
    # from a pixel of the result to one of the mask
    start = -shift if slant > 0 else 0.0
    sheared = mask.transform(
        wide,
        Image.Transform.AFFINE,
        (1 / stretch, slant, start, 0, 1, 0),
        Image.Resampling.BILINEAR,
    )
    spun = sheared.rotate(angle, Image.Resampling.BILINEAR, expand=True)
    return spun.crop(spun.point(lambda value: 255 if value > SOLID else 0).getbbox())


def background(rng: np.random.Generator, side: int) -> Image.Image:
    """Smooth blotches of colour, and noise."""
    cells = int(rng.integers(2, 9))
    coarse = rng.normal(rng.uniform(50, 205, 3), rng.uniform(5, 35), (cells, cells, 3))
    blotches = Image.fromarray(coarse.clip(0, 255).astype(np.uint8))
    smooth = np.asarray(blotches.resize((side, side), Image.Resampling.BICUBIC), np.float32)
    noise = rng.standard_normal((side, side, 1), np.float32) * np.float32(rng.uniform(0, 14))
    return Image.fromarray((smooth + noise).clip(0, 255).astype(np.uint8))


def colour(rng: np.random.Generator) -> tuple[int, int, int]:
    red, green, blue = rng.integers(0, 256, 3).tolist()
    return red, green, blue


def clutter(image: Image.Image, rng: np.random.Generator, side: int) -> None:
    """Lines, ellipses and letters that are no digits."""
    draw = ImageDraw.Draw(image)
    for _ in range(rng.integers(0, 7)):
        x0, y0, x1, y1 = rng.integers(-10, side + 10, 4).tolist()
        kind = rng.integers(4)
        width = int(rng.integers(1, 4))
        if kind == 0:
            draw.line((x0, y0, x1, y1), fill=colour(rng), width=width)
        elif kind == 1:
            box = (min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1))
            draw.ellipse(box, outline=colour(rng), width=width)
        else:
            text = LETTERS[rng.integers(len(LETTERS))]
            mask = turned(
                glyph(text, int(rng.integers(12, 40)), 0),
                rng.uniform(-40, 40),
                rng.uniform(-0.3, 0.3),
                1.0,
            )
            image.paste(colour(rng), (x0, y0), mask)


def contrasting(rng: np.random.Generator, around: np.ndarray) -> tuple[int, int, int]:
    """A colour that can be told from the mean of what is around it."""
    ink = colour(rng)
    for _ in range(20):
        if np.abs(np.subtract(ink, around)).sum() > 150:
            break
        ink = colour(rng)
    return ink


class Digit(NamedTuple):
    label: int
    box: list[float]  # x, y, width, height
    area: int  # of its ink, covered or not
    visible: np.ndarray  # where its ink is not covered


def scene(
    seed: int, split: str, number: int, side: int = SIDE, most: int = MOST
) -> tuple[Image.Image, list[Digit]]:
    """An image and its digits. A digit that would cover too much of another is left out."""
    rng = np.random.default_rng((seed, SPLITS[split], number))
    image = background(rng, side)
    clutter(image, rng, side)
    sizes = np.log((SMALLEST, LARGEST * side))
    digits: list[Digit] = []
    for _ in range(int(rng.integers(0, most + 1))):
        label = int(rng.integers(10))
        size = round(np.exp(rng.uniform(*sizes)))
        widest_stroke = sum(size > limit for limit in (24, 44))
        stroke = int(rng.integers(0, 1 + widest_stroke))
        mask = turned(
            glyph(str(label), size, stroke),
            rng.uniform(-25, 25),
            rng.uniform(-0.25, 0.25),
            rng.uniform(0.75, 1.3),
        )
        w, h = mask.size
        x = int(rng.integers(0, side - w))
        y = int(rng.integers(0, side - h))
        ink = np.zeros((side, side), bool)
        ink[y : y + h, x : x + w] = np.asarray(mask) > SOLID
        rest = [digit._replace(visible=digit.visible & ~ink) for digit in digits]
        if any(digit.visible.sum() < (1 - COVERED) * digit.area for digit in rest):
            continue
        around = np.asarray(image.crop((x, y, x + w, y + h))).mean((0, 1))
        image.paste(contrasting(rng, around), (x, y), mask)
        digits = [*rest, Digit(label, [x, y, w, h], int(ink.sum()), ink)]
    return image, digits


def write(
    folder: Path, split: str, count: int, seed: int, side: int = SIDE, most: int = MOST
) -> None:
    """Images under `folder/split`, annotations in `folder/split.json`."""
    (folder / split).mkdir(parents=True, exist_ok=True)
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for number in range(count):
        if number and number % 1000 == 0:
            print(f"{split}: {number:,} of {count:,} scenes", flush=True)
        image, digits = scene(seed, split, number, side, most)
        name = f"{number:06}.jpg"
        image.save(folder / split / name, quality=90)
        images.append({"id": number + 1, "file_name": name, "width": side, "height": side})
        annotations += [
            {
                "image_id": number + 1,
                "category_id": digit.label + 1,
                "bbox": digit.box,
                "area": digit.box[2] * digit.box[3],
                "iscrowd": 0,
            }
            for digit in digits
        ]
    for number, annotation in enumerate(annotations, 1):
        annotation["id"] = number
    categories = [{"id": digit + 1, "name": str(digit)} for digit in range(10)]
    (folder / f"{split}.json").write_text(
        json.dumps({"images": images, "annotations": annotations, "categories": categories})
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--train", type=int, default=15_000, help="scenes to train on")
    parser.add_argument("--valid", type=int, default=1_000, help="scenes held out")
    parser.add_argument("--side", type=int, default=SIDE, help="of a scene, in pixels")
    parser.add_argument("--most", type=int, default=MOST, help="digits of a scene")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if args.side < LEAST_SIDE:
        raise ValueError(
            f"--side {args.side}: a digit needs a scene of at least {LEAST_SIDE} pixels"
        )
    for split, count in (("train", args.train), ("valid", args.valid)):
        write(args.folder, split, count, args.seed, args.side, args.most)


if __name__ == "__main__":
    command.run(main)
