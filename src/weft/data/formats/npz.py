"""npz, numpy's archive: images as one array, or as encoded files end to end, with their labels.

Arrays are read from the archive by rows, so that a piece costs its own rows, and nothing is ever unpickled."""

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from io import SEEK_CUR
from itertools import pairwise
from math import prod
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.lib import format as npy

from ...recipe import Source
from ...recipe.formats import BadRow, SourceItem, SourceRow, Span
from ..files import file_identity, file_size
from ..images import MAX_PIXELS, encode_pixels
from .base import ROWS_PER_READ, FileFormat, cached_if_large, stretch

IMAGES = ("images", "image", "x", "data")  # (N, rows, columns) or (N, rows, columns, 1 or 3), uint8
ENCODED = (
    "jpeg",
    "jpg",
    "png",
    "encoded",
)  # the bytes of all files; `offsets` says where each starts
LABELS = ("labels", "label", "y", "targets")
NAME_LENGTHS = (
    26  # byte of a member's header that holds the lengths of its name and of its extra field
)
UNPACKED = 1000  # times its packed size; more is a bomb
MAX_CLASSES = 1 << 20


class NpzFormat(FileFormat):
    """Keys: `images` (uint8, a row per image) or `jpeg` and `offsets` (encoded files end to end); `labels`; and, where labels are
    numbers that stand for names, `classes`."""

    name = "npz"
    suffixes = (".npz",)
    offset_unit = "row"

    def sniff(self, head: bytes, path: str) -> float:
        return float(self.has_suffix(path))

    def spans(self, path: str, source: Source, piece_bytes: int) -> list[tuple[Span, int]]:
        checked = cached_if_large(
            [path], ["npz", file_identity(path)], partial(damaged_member, path)
        )
        if checked is not None:
            raise ValueError(f"{path} is damaged: {checked}; fetch it again")
        with open_archive(path) as archive:
            rows = archive.arrays[archive.labels].shape[0]
        begin, end = stretch(rows, source.fraction)
        row_bytes = max(1, file_size(path) // max(1, rows))
        step = max(1, piece_bytes // row_bytes)
        return [
            ((a, min(a + step, end)), row_bytes * (min(a + step, end) - a))
            for a in range(begin, end, step)
        ]

    def rows(
        self, path: str, span: Span, source: Source, columns: tuple[str, ...]
    ) -> Iterator[SourceItem]:
        first, last = span
        assert last is not None
        wanted = not columns or "image" in columns
        with open_archive(path) as archive:
            names = class_names(archive)
            for start in range(first, last, ROWS_PER_READ):
                stop = min(start + ROWS_PER_READ, last)
                yield from read_rows(archive, start, stop, wanted, names)


class Array(NamedTuple):
    """An array of an archive as its header says."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    start: int  # of its values, in bytes of the member


class Archive(NamedTuple):
    path: str
    file: zipfile.ZipFile
    arrays: dict[str, Array]
    labels: str  # names of arrays
    images: str | None
    encoded: str | None
    streams: dict[str, tuple[IO[bytes], int]]  # members that were read, and where their bytes start

    def read(self, name: str, begin: int, end: int) -> np.ndarray:
        """Rows [begin, end) of an array. A compressed one is unpacked from where the last read ended."""
        shape, dtype, start = self.arrays[name]
        row_bytes = prod(shape[1:]) * dtype.itemsize
        if name not in self.streams:
            stream = open_member(self.path, self.file, f"{name}.npy")
            self.streams[name] = stream, stream.tell()
        stream, first = self.streams[name]
        stream.seek(first + start + begin * row_bytes)
        data = stream.read((end - begin) * row_bytes)
        if len(data) < (end - begin) * row_bytes:
            raise ValueError(f"{self.path}: {name} ends early; fetch it again")
        return np.frombuffer(data, dtype).reshape(end - begin, *shape[1:])


def open_member(path: str, file: zipfile.ZipFile, name: str) -> IO[bytes]:
    """The bytes of a member from its first. One that is not compressed is read where it lies: `zipfile` would read all before it."""
    member = file.getinfo(name)
    if member.compress_type != zipfile.ZIP_STORED:
        return file.open(member)
    stream = open(path, "rb")  # noqa: SIM115 the caller closes it
    stream.seek(member.header_offset + NAME_LENGTHS)
    lengths = int.from_bytes(stream.read(2), "little") + int.from_bytes(stream.read(2), "little")
    stream.seek(lengths, SEEK_CUR)
    return stream


def damaged_member(path: str) -> str | None:
    """The name of a member whose bytes are not those of its checksum."""
    try:
        with zipfile.ZipFile(path) as file:
            return file.testzip()
    except (zipfile.BadZipFile, EOFError, OSError, zlib.error) as error:
        return str(error)


# numpy.load reads a whole array into memory, and checks neither its size nor its bytes first
@contextmanager
def open_archive(path: str) -> Iterator[Archive]:
    """ValueError for a file that is no archive of images and labels."""
    try:
        with zipfile.ZipFile(path) as file:
            archive = describe_archive(path, file)
            try:
                yield archive
            finally:
                for stream, _ in archive.streams.values():
                    stream.close()
    except zipfile.BadZipFile as error:
        raise ValueError(f"{path} cannot be read as npz: {error}; fetch it again") from None


def describe_archive(path: str, file: zipfile.ZipFile) -> Archive:
    arrays = {}
    for member in file.infolist():
        if member.file_size > UNPACKED * max(member.compress_size, 1 << 16):
            raise ValueError(f"{path}: {member.filename} claims {member.file_size:,} bytes")
        if member.filename.endswith(".npy"):
            with file.open(member) as stream:
                arrays[member.filename.removesuffix(".npy")] = read_header(path, member, stream)
    first = partial(next_of, arrays)
    images, encoded, labels = first(IMAGES), first(ENCODED), first(LABELS)
    if labels is None or (images is None and (encoded is None or "offsets" not in arrays)):
        raise ValueError(
            f"{path} holds the arrays {', '.join(arrays) or 'none'}; images are read from `images` and `labels`, "
            "or from `jpeg`, `offsets` and `labels`"
        )
    rows = arrays[images].shape[0] if images else arrays["offsets"].shape[0] - 1
    if arrays[labels].shape[0] != rows:
        raise ValueError(f"{path} holds {rows:,} images and {arrays[labels].shape[0]:,} labels")
    if arrays[labels].shape not in ((rows,), (rows, 1)):
        raise ValueError(
            f"{path}: {labels} have the shape {arrays[labels].shape}; give one per image, of one-hot rows {labels}.argmax(1)"
        )
    if images and not is_image_shape(arrays[images]):
        raise ValueError(
            f"{path}: {images} are {arrays[images].dtype} of shape {arrays[images].shape}; give uint8, "
            "(images, rows, columns) or (images, rows, columns, 1 or 3)"
        )
    return Archive(path, file, arrays, labels, images, encoded, {})


def read_header(path: str, member: zipfile.ZipInfo, stream: Any) -> Array:
    """What a member says of its values, if they are plain numbers or texts, in C order, and all there."""
    try:
        version = npy.read_magic(stream)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, by_columns, dtype = read(stream)
    except (ValueError, EOFError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"{path}: {member.filename} is no array: {reason}") from None
    values = prod(shape) * dtype.itemsize
    if dtype.hasobject or by_columns or not shape or stream.tell() + values > member.file_size:
        raise ValueError(
            f"{path}: {member.filename} is {dtype} of shape {shape}, not a whole array of numbers in C order"
        )
    return Array(shape, dtype, stream.tell())


def next_of(arrays: dict[str, Array], names: tuple[str, ...]) -> str | None:
    return next((name for name in names if name in arrays), None)


def is_image_shape(array: Array) -> bool:
    shape = array.shape
    sides = len(shape) == 3 or (len(shape) == 4 and shape[3] in (1, 3))
    return array.dtype == np.uint8 and sides and 0 < shape[1] * shape[2] <= MAX_PIXELS


def class_names(archive: Archive) -> np.ndarray | None:
    """What the numbers of the labels stand for; None: themselves."""
    if "classes" not in archive.arrays:
        return None
    count = archive.arrays["classes"].shape[0]
    if count > MAX_CLASSES:
        raise ValueError(
            f"{archive.path}: classes has {count:,} names; {MAX_CLASSES:,} are read at most"
        )
    return archive.read("classes", 0, count)


def read_rows(
    archive: Archive, begin: int, end: int, wanted: bool, names: np.ndarray | None
) -> Iterator[SourceItem]:
    labels = archive.read(archive.labels, begin, end).reshape(end - begin, -1)
    images = read_images(archive, begin, end) if wanted else [None] * (end - begin)
    for i, (label, image) in enumerate(zip(labels[:, 0].tolist(), images, strict=True)):
        if isinstance(image, str):
            yield BadRow(begin + i, image)
        elif names is not None and not (isinstance(label, int) and 0 <= label < len(names)):
            yield BadRow(begin + i, f"label {label} of {len(names)} classes")
        else:
            fields = {} if image is None else {"image": image}
            name = label if names is None else str(names[label])
            yield SourceRow(begin + i, fields | {"label": name})


def read_images(archive: Archive, begin: int, end: int) -> list[bytes | str]:
    """The bytes of each image, or what is wrong with it."""
    if archive.images is not None:
        return [encode_pixels(pixels) for pixels in archive.read(archive.images, begin, end)]
    assert archive.encoded is not None
    total = archive.arrays[archive.encoded].shape[0]
    offsets = archive.read("offsets", begin, end + 1).astype(np.int64).tolist()
    good = [0 <= a < b <= total for a, b in pairwise(offsets)]
    if all(good) and offsets:  # one stretch of the archive
        data = archive.read(archive.encoded, offsets[0], offsets[-1]).tobytes()
        return [data[a - offsets[0] : b - offsets[0]] for a, b in pairwise(offsets)]
    return [
        archive.read(archive.encoded, offsets[i], offsets[i + 1]).tobytes()
        if right
        else f"bytes {offsets[i]} to {offsets[i + 1]} of {total}"
        for i, right in enumerate(good)
    ]


NPZ = NpzFormat()
