"""Image decoding within size limits, crops and normalisation.

All random numbers are arguments, so results depend only on `draw`.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from io import BytesIO

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image

from ... import recipe as R
from ... import spec as S
from ...recipe.transforms import IMAGENET_MEAN, IMAGENET_STD

Floats = NDArray[np.floating]
MODES = {1: "L", 3: "RGB"}  # by the number of channels
TRIES = 10  # attempts before a random crop falls back to the center crop


def decode(data: bytes, channels: int = 3) -> Image.Image:
    if channels not in MODES:
        raise ValueError(f"channels = {channels} is not supported; use 1 or 3")
    return open_image(data, MODES[channels])


def crop_box(
    width: int,
    height: int,
    uniforms: Floats,
    area: tuple[float, float] = (0.08, 1.0),
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
) -> NDArray[np.int64]:
    """Return left, top, right, bottom of a random crop with a fraction of the area and an aspect
    ratio, the first of `TRIES` that fits (Szegedy et al. 2014, arXiv:1409.4842, section 6).
    `uniforms` is (..., TRIES, 4), for any number of crops at once.
    """
    boxes, fits = fitting_boxes(width, height, uniforms, area, ratio)
    first = np.take_along_axis(boxes, fits.argmax(-1)[..., None, None], -2)[..., 0, :]
    return np.where(np.asarray(fits.any(-1))[..., None], first, middle_box(width, height, ratio))


def fitting_boxes(
    width: int,
    height: int,
    uniforms: Floats,
    area: tuple[float, float],
    ratio: tuple[float, float],
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """A random part for each four uniform numbers, and whether the image has it."""
    size = width * height * (area[0] + (area[1] - area[0]) * uniforms[..., 0])
    sides = np.exp(np.log(ratio[0]) + np.log(ratio[1] / ratio[0]) * uniforms[..., 1])
    w, h = (np.rint(np.sqrt(part)).astype(np.int64) for part in (size * sides, size / sides))
    fits = (w >= 1) & (w <= width) & (h >= 1) & (h <= height)
    left, top = (
        np.floor(uniforms[..., 2 + i] * np.maximum(room + 1, 1)).astype(np.int64)
        for i, room in enumerate((width - w, height - h))
    )
    return np.stack((left, top, left + w, top + h), -1), fits


def middle_box(width: int, height: int, ratio: tuple[float, float]) -> NDArray[np.int64]:
    """Return the largest central crop with an allowed aspect ratio."""
    w = min(width, max(1, round(height * ratio[1])))
    h = min(height, max(1, round(width / ratio[0])))
    left = (width - w) // 2
    top = (height - h) // 2
    return np.array((left, top, left + w, top + h))


def random_crop_and_flip(
    image: Image.Image,
    size: int,
    rng: np.random.Generator,
    area: tuple[float, float] = (0.08, 1.0),
) -> Image.Image:
    """Return a random crop, mirrored with probability 0.5, for training."""
    uniforms = rng.random((TRIES + 1, 4))
    left, top, right, bottom = crop_box(*image.size, uniforms[1:], area).tolist()
    part = image.crop((left, top, right, bottom)).resize((size, size), Image.Resampling.BICUBIC)
    return part.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if uniforms[0, 0] < 0.5 else part


def normalise(
    image: Image.Image,
    mean: tuple[float, ...] = IMAGENET_MEAN,
    std: tuple[float, ...] = IMAGENET_STD,
) -> NDArray[np.float32]:
    """Return the normalised image (channels, rows, columns); grey uses the second of three values.

    Channel by channel and in place: four times as fast as pixel by pixel.
    """
    pixels = np.asarray(image).reshape(image.height, image.width, -1)
    channels = pixels.shape[-1]
    planes = pixels.transpose(2, 0, 1).astype(np.float32, order="C")
    planes /= np.float32(255)
    planes -= per_channel(mean, channels)
    planes /= per_channel(std, channels)
    return planes


def per_channel(values: tuple[float, ...], channels: int) -> NDArray[np.float32]:
    if len(values) != channels and channels > 1:
        raise ValueError(
            f"the image has {channels} channels, but Normalize has {len(values)} values; give one "
            "per channel"
        )
    middle = values if len(values) == channels else (np.mean(values),)
    return np.array(middle, np.float32)[:, None, None]


def usual_transforms(size: int) -> tuple[R.Transform, ...]:
    """Return the default transforms for validation."""
    part = R.RandomResizedCrop(size=size, interpolation="bicubic")
    return *part.for_evaluation(), R.Normalize()


def fit_to_size(transforms: Sequence[R.Transform], size: int) -> tuple[R.Transform, ...]:
    """Evaluation transforms for images of any size: where nothing changes the size, the whole image
    is resized first."""
    if any(transform.stage == "image" for transform in transforms):
        return tuple(transforms)
    return R.Resize(size=(size, size)), *transforms


def validation_transforms(task: R.Task, spec: S.Spec) -> tuple[R.Transform, ...]:
    """What the validation of a task sees of an image; one of another size is resized first where
    the model reads only one size.
    """
    transforms = R.transforms_for(task, evaluation=True)
    source = spec.source
    if not isinstance(source, S.Patches):
        return (R.Normalize(),) if transforms is None else transforms
    size = source.image_size
    return usual_transforms(size) if transforms is None else fit_to_size(transforms, size)


def normalisation(steps: Sequence[R.Transform], channels: int) -> R.Normalize:
    """Return the `Normalize` of evaluation transforms with one number per channel; without one,
    that which changes nothing.
    """
    plain = R.Normalize(mean=(0.0,), std=(1.0,))
    normal = next((step for step in steps if isinstance(step, R.Normalize)), plain)
    mean = one_per_channel(normal.mean, channels)
    return R.Normalize(mean=mean, std=one_per_channel(normal.std, channels))


def one_per_channel(numbers: tuple[float, ...], channels: int) -> tuple[float, ...]:
    """Return the numbers, or for another number of channels their mean for each."""
    if len(numbers) == channels:
        return numbers
    return (sum(numbers) / len(numbers),) * channels


# Not all that Pillow knows: its EPS plugin would start Ghostscript
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
MAX_PIXELS = 1 << 27  # a larger image is a decompression bomb


@contextmanager
def named_image_errors() -> Iterator[None]:
    """Turn what Pillow raises into a ValueError of one line: damaged bytes make its plugins raise
    errors of every kind."""
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        if reason.startswith("cannot identify"):
            reason = "cannot identify the image"
        raise ValueError(reason) from None


def read_image_header(data: bytes) -> Image.Image:
    """Open an image without reading its pixels; ValueError for too many of them."""
    image = Image.open(BytesIO(data), formats=FORMATS)
    if image.width * image.height > MAX_PIXELS:
        raise ValueError(
            f"{image.width} × {image.height} pixels exceed the limit of {MAX_PIXELS:,} pixels; "
            "resize the image"
        )
    return image


def open_image(data: bytes, mode: str = "RGB") -> Image.Image:
    """Decode an image to its last line, as it is displayed, and convert it to `mode`. Raises
    ValueError if the bytes are not a whole image."""
    if (raw := raw_image(data)) is not None:
        return raw if raw.mode == mode else raw.convert(mode)
    with named_image_errors(), read_image_header(data) as image:
        return eight_bits(upright(image)).convert(mode)


def decoded_size(data: bytes) -> tuple[int, int]:
    """Width and height of an image as it is displayed; ValueError if the bytes are not a whole
    image."""
    return open_image(data).size


class DecodedWithin:
    """As `decoded_size`, until the images have `pixels` together; of the others only the headers
    are read."""

    def __init__(self, pixels: int) -> None:
        self.pixels = pixels

    def __call__(self, data: bytes) -> tuple[int, int]:
        with named_image_errors():
            width, height = displayed_size(data)
        if width * height <= self.pixels:
            self.pixels -= width * height
            open_image(data)
        return width, height


def eight_bits(image: Image.Image) -> Image.Image:
    """An image that converts to grey or RGB without loss of its range: of 16-bit numbers, the
    higher byte of each."""
    deep_pgm = image.mode == "I" and image.format == "PPM"  # 0 to 65535, whatever its maximum
    if image.mode.startswith("I;16") or deep_pgm:  # Pillow would clip it at 255
        return Image.fromarray((np.asarray(image).astype(np.uint16) >> 8).astype(np.uint8))
    if image.mode in ("I", "F"):
        raise ValueError(
            "pixels of 32 bits or with a sign have no known range; save it with 8 or 16 bits"
        )
    if "transparency" in image.info:  # a palette's clear colour has no place in other modes
        return image.convert("RGBA")
    return image


# Orientation: EXIF says how to rotate the sensor's rows

TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
SIDEWAYS = (5, 6, 7, 8)  # width and height change places


def upright(image: Image.Image) -> Image.Image:
    """The image as it is displayed. `ImageOps.exif_transpose` would copy one that is upright, and
    fails where EXIF cannot be written back."""
    image.load()  # which turns a TIFF
    turn = TURNS.get(orientation(image.getexif))
    return image if turn is None else image.transpose(turn)


def displayed_size(data: bytes) -> tuple[int, int]:
    """Width and height of an image as it is displayed; its pixels are not read."""
    with read_image_header(data) as image:
        if image.format == "TIFF":  # Pillow has turned its size
            return image.size
        # PNG's own reads all pixels in search of a chunk behind them
        late = image.format == "PNG" and b"eXIf" in data
        read = image.getexif if late else partial(Image.Image.getexif, image)
        return image.size[::-1] if orientation(read) in SIDEWAYS else image.size


def orientation(read_exif: Callable[[], Image.Exif]) -> int:
    """A number from 1 to 8; 1, upright, where EXIF says nothing or is damaged, as image viewers
    do."""
    try:
        return int(read_exif().get(ExifTags.Base.Orientation, 1))
    except MemoryError:
        raise
    except Exception:  # damaged bytes make Pillow raise errors of every kind
        return 1


# Raw pixels

RAW_BYTES = 1 << 14  # of the pixels of an image that is stored as they are
PNM = re.compile(rb"P([56])\n([1-9]\d{0,8}) ([1-9]\d{0,8})\n255\n")


def encode_pixels(pixels: NDArray[np.uint8]) -> bytes:
    """Rows of grey or RGB pixels as a file that every program reads, a PGM or PPM: the shape, then
    the bytes as they are."""
    height, width = pixels.shape[:2]
    kind = 6 if pixels.ndim == 3 and pixels.shape[2] == 3 else 5
    assert pixels.size == height * width * (3 if kind == 6 else 1), pixels.shape
    return b"P%d\n%d %d\n255\n" % (kind, width, height) + pixels.tobytes()


def raw_image(data: bytes) -> Image.Image | None:
    """The image of bytes that `encode_pixels` wrote, a fifth of the time that Pillow's reader
    takes; None for other bytes."""
    header = PNM.match(data)
    if header is None:
        return None
    mode = "RGB" if header[1] == b"6" else "L"
    width, height = map(int, header.groups()[1:])
    if len(data) - header.end() != width * height * len(mode) or width * height > MAX_PIXELS:
        return None
    return Image.frombytes(mode, (width, height), memoryview(data)[header.end() :])


def stored_image(data: bytes) -> bytes:
    """The bytes that a shard holds of an encoded image: small ones as raw pixels, for decoding
    takes longer than all else that is done with them; large ones, and those that are neither grey
    nor RGB, as they came."""
    if PNM.match(data):
        return data
    with read_image_header(data) as image:
        plain = image.mode in ("L", "RGB") and "transparency" not in image.info
        if not plain or image.width * image.height * len(image.mode) > RAW_BYTES:
            return data
        return encode_pixels(np.asarray(upright(image)))


def to_image(pixels_CRS: Floats, normal: R.Normalize = R.Normalize()) -> Image.Image:
    """The inverse of a `Normalize`, rounded to bytes."""
    mean, std = (
        np.array(t if len(pixels_CRS) == len(t) else [np.mean(t)], np.float32)[:, None, None]
        for t in (normal.mean, normal.std)
    )
    bytes_CRS = np.rint(np.clip((pixels_CRS * std + mean) * 255, 0, 255)).astype(np.uint8)
    return Image.fromarray(bytes_CRS.transpose(1, 2, 0).squeeze())
