"""idx, the format of MNIST and similar data sets (LeCun et al. 1998): a file of images and one of
their labels.
"""

import os
import zlib
from collections.abc import Iterator
from glob import glob
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ....recipe import Source
from ....recipe.data.formats import BadRow, Format, Piece, SourceItem, SourceRow
from ....support.storage import digest_plain
from ...images.images import encode_pixels
from ..files import compressed, expand, file_identity, file_size, open_file, unpacked_limit
from .base import ROWS_PER_READ, damage, row_spans, stretch

UNSIGNED_BYTES = 8  # the third byte of a file: what its numbers are
IMAGES = "-images-idx3-ubyte"
LABELS = "-labels-idx1-ubyte"
SUFFIXES = ("idx3-ubyte", "idx1-ubyte", ".idx")


class IdxFormat(Format):
    """`Source.paths` are the file of images and that of labels, a glob of both (`mnist/train-*`),
    or a folder that holds one such pair."""

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
            header = read_header(images)
            check_pair(images, header, labels, read_header(labels))
            identity = digest_plain([file_identity(images), file_identity(labels)])
            row_bytes = prod(header.sides[1:]) + 1
            for span in row_spans(
                stretch(header.sides[0], source.fraction), row_bytes, piece_bytes
            ):
                size = row_bytes * (span[1] - span[0])
                pieces.append(Piece((images, labels), (span, span), size, identity))
        return pieces

    def read(
        self, piece: Piece, source: Source, columns: tuple[str, ...] = ()
    ) -> Iterator[SourceItem]:
        images, labels = piece.paths
        first, last = piece.spans[0]
        assert last is not None
        reason = damage(images) or damage(labels)
        if reason is not None:
            yield from (BadRow(row, reason) for row in range(first, last))
            return
        with_images = not columns or "image" in columns
        rows = range(first, last)
        all_pixels = iterate_rows(images, first, last) if with_images else (None for _ in rows)
        classes = iterate_rows(labels, first, last)
        for row, label, pixels in zip(rows, classes, all_pixels, strict=True):
            image = {} if pixels is None else {"image": encode_pixels(pixels)}
            yield SourceRow(row, image | {"label": int(label)})


class Header(NamedTuple):
    sides: tuple[int, ...]  # the number of rows first
    size: int  # its own bytes


def read_header(path: str) -> Header:
    """The shape that a file says it has; ValueError where it is no idx file of bytes, or says more
    than it can hold."""
    with open_file(path) as stream:
        mark = read_exactly(path, stream, 4)
        if mark[:3] != bytes((0, 0, UNSIGNED_BYTES)) or mark[3] not in (1, 3):
            raise ValueError(
                f"{path} is not an idx file of bytes in one or three dimensions; download it "
                "again, or name its format"
            )
        numbers = np.frombuffer(read_exactly(path, stream, 4 * mark[3]), ">u4")
    header = Header(tuple(map(int, numbers)), 4 + 4 * mark[3])
    limit = unpacked_limit(path) if compressed(path) else file_size(path)
    claimed = header.size + prod(header.sides)
    if claimed > limit:
        raise ValueError(
            f"{path} is damaged: its header says {claimed:,} bytes, but it has at most {limit:,}; "
            "download it again"
        )
    return header


def read_exactly(path: str, stream: Any, count: int, start: int | None = None) -> bytes:
    """The next bytes, or those from `start` on; ValueError for an archive that is damaged before or
    in them."""
    try:
        if start is not None:
            stream.seek(start)
        data: bytes = stream.read(count)
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{path} cannot be unpacked: {error}; download it again") from None
    if len(data) < count:
        raise ValueError(f"{path} is truncated; download it again")
    return data


def iterate_rows(path: str, first: int, last: int) -> Iterator[np.ndarray]:
    """Yield rows [first, last) of a file one by one, some read at a time."""
    header = read_header(path)
    sides = header.sides[1:]
    with open_file(path) as stream:
        for begin in range(first, last, ROWS_PER_READ):
            count = min(ROWS_PER_READ, last - begin)
            start = header.size + begin * prod(sides)
            data = read_exactly(path, stream, count * prod(sides), start)
            yield from np.frombuffer(data, np.uint8).reshape(count, *sides)


# Which files belong together


def source_pairs(source: Source) -> list[tuple[str, str]]:
    """Return the files of images, each with its labels."""
    files = [file for path in expand(source.paths) for file in files_of_path(path)]
    images = [path for path in files if len(read_header(path).sides) == 3]
    labels = [path for path in files if path not in images]
    if len(images) != len(labels) or not images:
        raise ValueError(
            f"an idx source is files of images and as many of labels, not {len(images)} and "
            f"{len(labels)}; give both, such as t10k{IMAGES} and t10k{LABELS}"
        )
    return list(zip(images, labels, strict=True))


def files_of_path(path: str) -> tuple[str, ...]:
    """Return a file, or the one pair of a folder."""
    if not os.path.isdir(path):
        return (path,)
    pairs = pairs_in(path)
    if len(pairs) != 1:
        names = " or ".join(f"{os.path.join(path, name)}-*" for name in pairs) or "its files"
        raise ValueError(f"{path} contains {len(pairs)} pairs of idx files; give {names}")
    return next(iter(pairs.values()))


def pairs_in(folder: str) -> dict[str, tuple[str, str]]:
    """Return the pairs of a folder by what their names start with: train and t10k in the published
    ones."""
    pairs = {}
    for images in sorted(glob(os.path.join(folder, f"*{IMAGES}*"))):
        labels = images.replace(IMAGES, LABELS)
        if os.path.isfile(labels):
            pairs[os.path.basename(images).partition(IMAGES)[0]] = (images, labels)
    return pairs


def check_pair(images: str, shape: Header, labels: str, label_shape: Header) -> None:
    if shape.sides[0] != label_shape.sides[0]:
        raise ValueError(
            f"{images} has {shape.sides[0]:,} images, but {labels} has {label_shape.sides[0]:,} "
            "labels; give two files of the same data"
        )


IDX = IdxFormat()
