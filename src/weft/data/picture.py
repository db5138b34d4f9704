"""Encoded images, opened within bounds: these formats only, so many pixels, and one kind of error."""
from io import BytesIO

from PIL import Image

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM")         # Pillow's EPS plugin would start Ghostscript
PIXELS = 1 << 27                           # an image larger than this is a bomb


def open_image(data: bytes, mode: str = "RGB") -> Image.Image:
    """Decode an image to its last line and convert it to `mode`. Raises ValueError if the bytes are not a whole image."""
    try:
        with Image.open(BytesIO(data), formats=FORMATS) as image:
            if image.width * image.height > PIXELS:
                raise ValueError(f"an image of {image.width} × {image.height} pixels")
            image.load()
            if "transparency" in image.info:       # a palette's clear colour has no place in other modes
                return image.convert("RGBA").convert(mode)
            return image.convert(mode)
    except MemoryError:
        raise
    except Exception as error:             # damaged bytes make Pillow's plugins raise errors of every kind
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError("cannot identify the image" if reason.startswith("cannot identify") else reason) from None
