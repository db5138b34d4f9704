"""npz, numpy's archive: images as one array, or as concatenated encoded files, with their labels.

Arrays are read by rows, so that memory does not grow with the archive; nothing is unpickled.
"""

import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import pairwise
from math import prod
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.lib import format as npy

from ....recipe import Source
from ....recipe.data.formats import BadRow, SourceItem, SourceRow, Span
from ...images.images import MAX_PIXELS, encode_pixels
from ..files import file_identity, file_size
from .base import ROWS_PER_READ, FileFormat, cached_if_large, row_spans, stretch

IMAGES = ("images", "image", "x", "data")  # (N, rows, columns) or (N, rows, columns, 1 or 3), uint8
# The bytes of all files; `offsets` says where each starts
ENCODED = ("jpeg", "jpg", "png", "encoded")
LABELS = ("labels", "label", "y", "targets")
UNPACKED = 1000  # times its packed size; more is a bomb
MAX_CLASSES = 1 << 20


class NpzFormat(FileFormat):
    """Keys: `images` (uint8, a row per image) or `jpeg` and `offsets` (encoded files end to end);
    `labels`; and, where labels are numbers that stand for names, `classes`."""

    name = "npz"
    suffixes = (".npz",)
    offset_unit = "row"

    def sniff(self, head: bytes, path: str) -> float:
        return float(self.has_suffix(path))

    def spans(self, path: str, source: Source, piece_bytes: int) -> list[tuple[Span, int]]:
        key = ["npz", file_identity(path)]
        reason = cached_if_large([path], key, partial(describe_damage, path))
        if reason is not None:
            raise ValueError(f"{path} is damaged: {reason}; fetch it again")
        with open_archive(path) as archive:
            count = archive.labels.shape[0]
        row_bytes = max(1, file_size(path) // max(1, count))
        spans = row_spans(stretch(count, source.fraction), row_bytes, piece_bytes)
        return [((begin, end), row_bytes * (end - begin)) for begin, end in spans]

    def rows(
        self, path: str, span: Span, source: Source, columns: tuple[str, ...]
    ) -> Iterator[SourceItem]:
        first, last = span
        assert last is not None
        with_images = not columns or "image" in columns
        with open_archive(path) as archive:
            for begin in range(first, last, ROWS_PER_READ):
                end = min(begin + ROWS_PER_READ, last)
                yield from read_rows(archive, begin, end, with_images)


class Array(NamedTuple):
    """An array of an archive, as its header describes it."""

    stream: IO[bytes]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    start: int  # of its values, in bytes of the stream

    def read(self, begin: int, end: int) -> np.ndarray:
        """Return rows [begin, end); those between the last read and `begin` are unpacked too."""
        row_bytes = prod(self.shape[1:]) * self.dtype.itemsize
        self.stream.seek(self.start + begin * row_bytes)
        data = self.stream.read((end - begin) * row_bytes)
        return np.frombuffer(data, self.dtype).reshape(end - begin, *self.shape[1:])


class Archive(NamedTuple):
    """The arrays of an archive: `images`, or `encoded` and `offsets`."""

    labels: Array
    images: Array | None
    encoded: Array | None
    offsets: Array | None
    classes: np.ndarray | None  # what the numbers of the labels stand for; None: themselves


def describe_damage(path: str) -> str | None:
    """Return why an archive cannot be read, or a member whose bytes do not match its checksum."""
    try:
        with zipfile.ZipFile(path) as file:
            return file.testzip()
    except Exception as error:  # damaged bytes make zipfile raise errors of every kind
        return str(error)


@contextmanager
def open_archive(path: str) -> Iterator[Archive]:
    """Open an undamaged archive.

    Raises:
        ValueError: if it does not hold images and labels.
    """
    with ExitStack() as stack:
        file = stack.enter_context(zipfile.ZipFile(path))
        arrays = {}
        for member in file.infolist():
            if member.file_size > UNPACKED * max(member.compress_size, 1 << 16):
                raise ValueError(f"{path}: {member.filename} claims {member.file_size:,} bytes")
            if member.filename.endswith(".npy"):
                stream = stack.enter_context(file.open(member))
                arrays[member.filename.removesuffix(".npy")] = read_header(path, member, stream)
        yield find_arrays(path, arrays)


def read_header(path: str, member: zipfile.ZipInfo, stream: IO[bytes]) -> Array:
    """Return an array whose header describes plain numbers or texts, in C order, and all there."""
    try:
        version = npy.read_magic(stream)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, by_columns, dtype = read(stream)
    except (ValueError, EOFError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"{path}: {member.filename} is no array: {reason}") from None
    start = stream.tell()
    is_whole = start + prod(shape) * dtype.itemsize <= member.file_size
    if dtype.hasobject or by_columns or not shape or not is_whole:
        raise ValueError(
            f"{path}: {member.filename} is {dtype} of shape {shape}, "
            "not a whole array of numbers in C order"
        )
    return Array(stream, shape, dtype, start)


def find_arrays(path: str, arrays: dict[str, Array]) -> Archive:
    """Return the arrays of images and labels; ValueError if they are missing or do not match."""
    images, encoded, labels = (
        next((arrays[name] for name in names if name in arrays), None)
        for names in (IMAGES, ENCODED, LABELS)
    )
    offsets = arrays.get("offsets")
    per_image = images or (offsets if encoded else None)
    if labels is None or per_image is None:
        raise ValueError(
            f"{path} holds the arrays {', '.join(arrays) or 'none'}; images are read from `images` "
            "and `labels`, or from `jpeg`, `offsets` and `labels`"
        )
    count = per_image.shape[0] if images else per_image.shape[0] - 1
    if labels.shape[0] != count:
        raise ValueError(f"{path} holds {count:,} images and {labels.shape[0]:,} labels")
    if labels.shape not in ((count,), (count, 1)):
        raise ValueError(
            f"{path}: the labels have the shape {labels.shape}; "
            "give one per image, of one-hot rows labels.argmax(1)"
        )
    if images and not is_image_shape(images):
        raise ValueError(
            f"{path}: the images are {images.dtype} of shape {images.shape}; give uint8, "
            "(images, rows, columns) or (images, rows, columns, 1 or 3)"
        )
    classes = read_class_names(path, arrays["classes"]) if "classes" in arrays else None
    return Archive(labels, images, encoded, offsets, classes)


def is_image_shape(array: Array) -> bool:
    shape = array.shape
    has_sides = len(shape) == 3 or (len(shape) == 4 and shape[3] in (1, 3))
    return array.dtype == np.uint8 and has_sides and 0 < shape[1] * shape[2] <= MAX_PIXELS


def read_class_names(path: str, array: Array) -> np.ndarray:
    count = array.shape[0]
    if count > MAX_CLASSES:
        raise ValueError(f"{path}: classes has {count:,} names; give at most {MAX_CLASSES:,}")
    return array.read(0, count)


def read_rows(archive: Archive, begin: int, end: int, with_images: bool) -> Iterator[SourceItem]:
    labels = archive.labels.read(begin, end).reshape(-1).tolist()
    images = read_images(archive, begin, end) if with_images else [None] * len(labels)
    classes = archive.classes
    for offset, label, image in zip(range(begin, end), labels, images, strict=True):
        if isinstance(image, str):
            yield BadRow(offset, image)
            continue
        fields = {} if image is None else {"image": image}
        if classes is None:
            yield SourceRow(offset, fields | {"label": label})
        elif isinstance(label, int) and 0 <= label < len(classes):
            yield SourceRow(offset, fields | {"label": str(classes[label])})
        else:
            yield BadRow(offset, f"label {label} of {len(classes)} classes")


def read_images(archive: Archive, begin: int, end: int) -> list[bytes | str]:
    """Return the bytes of each image, or why it has none."""
    if archive.images is not None:
        return [encode_pixels(pixels) for pixels in archive.images.read(begin, end)]
    assert archive.encoded is not None
    assert archive.offsets is not None
    total = archive.encoded.shape[0]
    offsets = archive.offsets.read(begin, end + 1).astype(np.int64).tolist()
    return [
        archive.encoded.read(start, stop).tobytes()
        if 0 <= start < stop <= total
        else f"bytes {start} to {stop} of {total}"
        for start, stop in pairwise(offsets)
    ]


NPZ = NpzFormat()
