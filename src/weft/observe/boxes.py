"""Boxes drawn on an image."""

from collections.abc import Sequence
from typing import Any

from PIL import Image, ImageDraw, ImageFont

COLOURS = ("#e6194b", "#3cb44b", "#4363d8", "#f58231", "#911eb4", "#008080", "#9a6324", "#808000")
Rectangle = tuple[float, float, float, float]  # left, top, right, bottom
SMALLEST = 384  # the longer side is enlarged to this at least, so that labels can be read


def draw_boxes(
    image: Image.Image, objects: Sequence[dict[str, Any]], labels: Sequence[str] = ()
) -> Image.Image:
    """Return a copy of an image with each object's box, class and score.

    Args:
        image: of any mode.
        objects: dictionaries with `label`, `score` and `box` (x, y, width, height in pixels), the
            surest first.
        labels: all classes, so that one has the same colour in every image
            (default: those of the objects).
    """
    scale = max(1, -(-SMALLEST // max(image.size)))
    size = (image.width * scale, image.height * scale)
    canvas = image.convert("RGB").resize(size, Image.Resampling.NEAREST)
    draw = ImageDraw.Draw(canvas)
    font = ImageFont.load_default(max(11, size[1] // 40))
    labels = labels or sorted({thing["label"] for thing in objects})
    colours = [COLOURS[labels.index(thing["label"]) % len(COLOURS)] for thing in objects]
    boxes = [[scale * side for side in thing["box"]] for thing in objects]
    for (x, y, w, h), colour in reversed([*zip(boxes, colours, strict=True)]):  # the surest on top
        draw.rectangle((x, y, x + w, y + h), outline=colour, width=max(2, size[1] // 300))
    places: list[Rectangle] = []
    for thing, box, colour in zip(objects, boxes, colours, strict=True):
        text = f"{thing['label']}: {thing['score']:.2f}"
        left, top, right, bottom = draw.textbbox((0, 0), text, font, anchor="lt")
        places.append(free_place(box, (right - left + 4, bottom - top + 4), size, places))
        draw.rectangle(places[-1], fill=colour)
        draw.text((places[-1][0] + 2, places[-1][1] + 2), text, "white", font, anchor="lt")
    return canvas


def free_place(
    box: Sequence[float],
    text: tuple[float, float],
    size: tuple[int, int],
    taken: Sequence[Rectangle],
) -> Rectangle:
    """Return where the label of a box is written: above it,
    or at the first other corner where it hides no other label."""
    x, y, w, h = box
    width, height = text
    corners = [(a, b) for a in (x, x + w - width) for b in (y - height, y, y + h, y + h - height)]
    places = []
    for corner in corners:
        left, top = (max(0, min(corner[i], size[i] - text[i])) for i in (0, 1))
        places.append((left, top, left + width, top + height))
    free = (place for place in places if not any(overlap(place, other) for other in taken))
    return next(free, places[0])


def overlap(a: Rectangle, b: Rectangle) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
