"""idx, the format of MNIST and of the sets that took its place (LeCun et al. 1998): a file of images and one of their labels."""

import os
import zlib
from collections.abc import Iterator
from glob import glob
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ...recipe import Source
from ...recipe.formats import BadRow, Format, Piece, SourceItem, SourceRow
from ...storage import digest_plain
from ..files import compressed, expand, file_identity, file_size, open_file, unpacked_limit
from ..images import encode_pixels
from .base import ROWS_PER_READ, damage, stretch

UNSIGNED_BYTES = 8  # the third byte of a file: what its numbers are
IMAGES, LABELS = "-images-idx3-ubyte", "-labels-idx1-ubyte"
SUFFIXES = ("idx3-ubyte", "idx1-ubyte", ".idx")


class IdxFormat(Format):
    """`Source.paths` are the file of images and that of labels, a glob of both (`mnist/train-*`), or a folder that holds one such pair."""

    name = "idx"
    suffixes = SUFFIXES
    offset_unit = "row"

    def sniff(self, head: bytes, path: str) -> float:
        if not head:
            return float(self.has_suffix(path) or bool(pairs_in(path)))
        return 0.95 if head[:3] == bytes((0, 0, UNSIGNED_BYTES)) and head[3:4] in b"\1\3" else 0.0

    def pieces(self, source: Source, piece_bytes: int) -> list[Piece]:
        pieces = []
        for images, labels in source_pairs(source):
            shape, label_shape = read_header(images), read_header(labels)
            check_pair(images, shape, labels, label_shape)
            identity = digest_plain([file_identity(images), file_identity(labels)])
            row_bytes = prod(shape.sides[1:]) + 1
            step = max(1, piece_bytes // row_bytes)
            begin, end = stretch(shape.sides[0], source.fraction)
            pieces += [
                Piece(
                    (images, labels),
                    ((first, last), (first, last)),
                    row_bytes * (last - first),
                    identity,
                )
                for first, last in ((a, min(a + step, end)) for a in range(begin, end, step))
            ]
        return pieces

    def read(
        self, piece: Piece, source: Source, columns: tuple[str, ...] = ()
    ) -> Iterator[SourceItem]:
        (images, labels), (first, last) = piece.paths, piece.spans[0]
        assert last is not None
        reason = damage(images) or damage(labels)
        if reason is not None:
            yield from (BadRow(place, reason) for place in range(first, last))
            return
        classes = read_values(labels, first, last)
        wanted = not columns or "image" in columns
        pictures = iter_images(images, first, last) if wanted else (None for _ in classes)
        for i, (label, pixels) in enumerate(zip(classes, pictures, strict=True)):
            image = {} if pixels is None else {"image": encode_pixels(pixels)}
            yield SourceRow(first + i, image | {"label": int(label)})


class Header(NamedTuple):
    sides: tuple[int, ...]  # the number of rows first
    size: int  # its own bytes


def read_header(path: str) -> Header:
    """The shape that a file says it has; ValueError where it is no idx file of bytes, or says more than it can hold."""
    with open_file(path) as stream:
        mark = read_exactly(path, stream, 4)
        if mark[:3] != bytes((0, 0, UNSIGNED_BYTES)) or mark[3] not in (1, 3):
            raise ValueError(
                f"{path} is not an idx file of bytes in one or three dimensions; fetch it again, or name its format"
            )
        numbers = np.frombuffer(read_exactly(path, stream, 4 * mark[3]), ">u4")
    header = Header(tuple(map(int, numbers)), 4 + 4 * mark[3])
    limit = unpacked_limit(path) if compressed(path) else file_size(path)
    claimed = header.size + prod(header.sides)
    if claimed > limit:
        raise ValueError(
            f"{path} claims {claimed:,} bytes and holds {limit:,} at most; fetch it again"
        )
    return header


def read_exactly(path: str, stream: Any, count: int, start: int | None = None) -> bytes:
    """The next bytes, or those from `start` on; ValueError for an archive that is damaged before or in them."""
    try:
        if start is not None:
            stream.seek(start)
        data: bytes = stream.read(count)
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{path} cannot be unpacked: {error}; fetch it again") from None
    if len(data) < count:
        raise ValueError(f"{path} ends early; fetch it again")
    return data


def read_values(path: str, first: int, last: int) -> np.ndarray:
    """Rows [first, last) of a file."""
    header = read_header(path)
    sides = header.sides[1:]
    with open_file(path) as stream:
        start = header.size + first * prod(sides)
        data = read_exactly(path, stream, (last - first) * prod(sides), start)
    return np.frombuffer(data, np.uint8).reshape(last - first, *sides)


def iter_images(path: str, first: int, last: int) -> Iterator[np.ndarray]:
    """The images one by one, some rows read at a time."""
    sides = (header := read_header(path)).sides[1:]
    with open_file(path) as stream:
        for row in range(first, last, ROWS_PER_READ):
            count, start = min(ROWS_PER_READ, last - row), header.size + row * prod(sides)
            data = read_exactly(path, stream, count * prod(sides), start)
            yield from np.frombuffer(data, np.uint8).reshape(count, *sides)


# Which files belong together


def source_pairs(source: Source) -> list[tuple[str, str]]:
    """Files of images, each with its labels."""
    files = []
    for path in expand(source.paths):
        if not os.path.isdir(path):
            files.append(path)
            continue
        pairs = pairs_in(path)
        if len(pairs) != 1:
            names = " or ".join(f"{os.path.join(path, name)}-*" for name in pairs) or "its files"
            raise ValueError(f"{path} holds {len(pairs)} pairs of idx files; give {names}")
        files += list(*pairs.values())
    images = [path for path in files if len(read_header(path).sides) == 3]
    labels = [path for path in files if path not in images]
    if len(images) != len(labels) or not images:
        raise ValueError(
            f"an idx source is files of images and as many of labels, not {len(images)} and {len(labels)}; "
            f"give both, such as t10k{IMAGES} and t10k{LABELS}"
        )
    return list(zip(images, labels, strict=True))


def pairs_in(folder: str) -> dict[str, tuple[str, str]]:
    """The pairs of a folder by what their names start with: train and t10k in the published ones."""
    if not os.path.isdir(folder):
        return {}
    images = sorted(glob(os.path.join(folder, f"*{IMAGES}*")))
    pairs = {}
    for path in images:
        labels = path.replace(IMAGES, LABELS)
        if os.path.isfile(labels):
            pairs[os.path.basename(path).partition(IMAGES)[0]] = (path, labels)
    return pairs


def check_pair(images: str, shape: Header, labels: str, label_shape: Header) -> None:
    if shape.sides[0] != label_shape.sides[0]:
        raise ValueError(
            f"{images} holds {shape.sides[0]:,} images, {labels} {label_shape.sides[0]:,} labels; give two files that belong together"
        )


IDX = IdxFormat()
