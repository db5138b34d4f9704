"""Images: opened within bounds, then from encoded bytes to normalised numbers.

All chance is handed in as uniform numbers, so a picture is pure in `draw`."""

from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from .. import spec as S
from .samples import RowSamples
from .store import Store

Floats = NDArray[np.floating]
MODES = {1: "L", 3: "RGB"}  # by the number of channels
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet's training images
TRIES = 10  # before a random crop gives up and takes the middle


def decode(data: bytes, channels: int = 3) -> Image.Image:
    if channels not in MODES:
        raise ValueError(f"images are read with 1 or 3 channels, not {channels}")
    return open_image(data, MODES[channels])


def crop_box(
    width: int,
    height: int,
    uniforms: Floats,
    area: tuple[float, float] = (0.08, 1.0),
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
) -> NDArray[np.int64]:
    """left, top, right, bottom of a random part: a share of the area and a ratio of the sides, the first of `TRIES` that fits
    (Szegedy et al. 2014, arXiv:1409.4842, section 6). `chance` is uniform, (..., TRIES, 4); so any number of boxes at once."""
    size = width * height * (area[0] + (area[1] - area[0]) * uniforms[..., 0])
    sides = np.exp(np.log(ratio[0]) + np.log(ratio[1] / ratio[0]) * uniforms[..., 1])
    w, h = (np.rint(np.sqrt(part)).astype(np.int64) for part in (size * sides, size / sides))
    fits = (w >= 1) & (w <= width) & (h >= 1) & (h <= height)
    left, top = (
        np.floor(uniforms[..., 2 + i] * np.maximum(room + 1, 1)).astype(np.int64)
        for i, room in enumerate((width - w, height - h))
    )
    boxes = np.stack((left, top, left + w, top + h), -1)
    first = np.take_along_axis(boxes, fits.argmax(-1)[..., None, None], -2)[..., 0, :]
    return np.where(fits.any(-1)[..., None], first, middle_box(width, height, ratio))


def middle_box(width: int, height: int, ratio: tuple[float, float]) -> NDArray[np.int64]:
    """The largest part in the middle whose sides have an allowed ratio."""
    w, h = (
        min(width, max(1, round(height * ratio[1]))),
        min(height, max(1, round(width / ratio[0]))),
    )
    left, top = (width - w) // 2, (height - h) // 2
    return np.array((left, top, left + w, top + h))


def random_crop_and_flip(
    image: Image.Image,
    size: int,
    rng: np.random.Generator,
    area: tuple[float, float] = (0.08, 1.0),
) -> Image.Image:
    """A random part, mirrored half of the time: what training sees."""
    chance = rng.random((TRIES + 1, 4))
    left, top, right, bottom = crop_box(*image.size, chance[1:], area).tolist()
    part = image.crop((left, top, right, bottom)).resize((size, size), Image.Resampling.BICUBIC)
    return part.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if chance[0, 0] < 0.5 else part


def shorter_side(size: int, share: float = 0.875) -> int:
    """The shorter side of an image of which a square of `size` shows `share`."""
    return round(size / share)


def centre_crop(image: Image.Image, size: int, share: float = 0.875) -> Image.Image:
    """The middle square, `share` of the shorter side: what validation sees. Sizes are rounded down, as torchvision and transformers do."""
    short = shorter_side(size, share)
    width, height = (int(short * side / min(image.size)) for side in image.size)
    left, top = (width - size) // 2, (height - size) // 2
    return image.resize((width, height), Image.Resampling.BICUBIC).crop(
        (left, top, left + size, top + size)
    )


def normalise(image: Image.Image) -> NDArray[np.float32]:
    """(channels, rows, columns), each channel with mean 0 and deviation 1 over ImageNet; grey by the middle of the three."""
    pixels = np.asarray(image, np.float32).reshape(image.height, image.width, -1)
    mean, std = (
        np.array(t if pixels.shape[-1] == 3 else np.mean(t), np.float32) for t in (MEAN, STD)
    )
    return np.ascontiguousarray(((pixels / np.float32(255) - mean) / std).transpose(2, 0, 1))


class ImageSamples(RowSamples):
    """Rows with an image, seen at `size`: a random part, or in validation (`still`) the middle."""

    def __init__(
        self,
        store: Store,
        patches: S.Patches,
        area: tuple[float, float] = (0.08, 1.0),
        deterministic: bool = False,
    ) -> None:
        super().__init__(store)
        self.size, self.channels, self.area, self.deterministic = (
            patches.image_size,
            patches.channels,
            area,
            deterministic,
        )
        self.tokens = (patches.image_size // patches.patch_size) ** 2 + len(patches.extra_tokens)

    def lengths(self, indices: NDArray[Any]) -> NDArray[np.int64]:
        return np.full(len(indices), self.tokens)

    def transform(self, data: bytes, rng: np.random.Generator) -> NDArray[np.float32]:
        image = decode(data, self.channels)
        return normalise(
            centre_crop(image, self.size)
            if self.deterministic
            else random_crop_and_flip(image, self.size, rng, self.area)
        )


FORMATS = (
    "PNG",
    "JPEG",
    "WEBP",
    "GIF",
    "BMP",
    "TIFF",
    "PPM",
)  # Pillow's EPS plugin would start Ghostscript
MAX_PIXELS = 1 << 27  # an image larger than this is a bomb


def open_image(data: bytes, mode: str = "RGB") -> Image.Image:
    """Decode an image to its last line and convert it to `mode`. Raises ValueError if the bytes are not a whole image."""
    try:
        with Image.open(BytesIO(data), formats=FORMATS) as image:
            if image.width * image.height > MAX_PIXELS:
                raise ValueError(f"an image of {image.width} × {image.height} pixels")
            image.load()
            if "transparency" in image.info:  # a palette's clear colour has no place in other modes
                return image.convert("RGBA").convert(mode)
            return image.convert(mode)
    except MemoryError:
        raise
    except Exception as error:  # damaged bytes make Pillow's plugins raise errors of every kind
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(
            "cannot identify the image" if reason.startswith("cannot identify") else reason
        ) from None


def to_image(pixels_CRS: Floats) -> Image.Image:
    """The inverse of `normalise`, rounded to bytes."""
    mean, std = (
        np.array(t if len(pixels_CRS) == 3 else [np.mean(t)], np.float32)[:, None, None]
        for t in (MEAN, STD)
    )
    bytes_CRS = np.rint(np.clip((pixels_CRS * std + mean) * 255, 0, 255)).astype(np.uint8)
    return Image.fromarray(bytes_CRS.transpose(1, 2, 0).squeeze())
