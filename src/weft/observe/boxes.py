"""Boxes drawn on an image."""

from collections.abc import Sequence
from typing import Any

from PIL import Image, ImageDraw, ImageFont

COLOURS = ("#e6194b", "#3cb44b", "#4363d8", "#f58231", "#911eb4", "#008080", "#9a6324", "#808000")
SMALLEST = 384  # the longer side is enlarged to this at least, so that labels can be read


def draw_boxes(
    image: Image.Image, objects: Sequence[dict[str, Any]], labels: Sequence[str] = ()
) -> Image.Image:
    """Return a copy of an image with each object's box, class and score.

    Args:
        image: of any mode.
        objects: dictionaries with `label`, `score` and `box` (x, y, width, height in pixels), the surest first.
        labels: all classes, so that one has the same colour in every image (default: those of the objects).
    """
    scale = max(1, -(-SMALLEST // max(image.size)))
    size = (image.width * scale, image.height * scale)
    canvas = image.convert("RGB").resize(size, Image.Resampling.NEAREST)
    draw, font = ImageDraw.Draw(canvas), ImageFont.load_default(max(11, size[1] // 40))
    labels = labels or sorted({thing["label"] for thing in objects})
    for thing in reversed(objects):  # the surest is drawn last, on top
        x, y, w, h = (scale * side for side in thing["box"])
        colour = COLOURS[labels.index(thing["label"]) % len(COLOURS)]
        draw.rectangle((x, y, x + w, y + h), outline=colour, width=max(2, size[1] // 300))
        text = f"{thing['label']}: {thing['score']:.2f}"
        left, top, right, bottom = draw.textbbox((x + 2, max(0, y - size[1] // 30)), text, font)
        draw.rectangle((left - 2, top - 1, right + 2, bottom + 1), fill=colour)
        draw.text((left, top), text, "white", font, anchor="lt")
    return canvas
