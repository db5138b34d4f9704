"""Images in a directory that a table names, shared by two formats."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ....recipe import Source
from ....recipe.data.formats import Piece
from ....support.folder_files import is_inside
from ....support.storage import digest_plain
from ..files import find, local_file_size, read_bounded, size_and_mtime
from .base import group_by_size, stretch


def table_and_folder(source: Source, table: str = "table") -> tuple[str, str]:
    """Return the two paths of a source: what names the images, called `table` in an error, and
    their folder."""
    if len(source.paths) != 2:
        raise ValueError(
            f"{source.format} reads two paths, the {table} and the folder of its images; give "
            f"both, not {' '.join(source.paths)} alone"
        )
    (path,), (folder,) = map(find, source.paths)
    return path, folder


def read_image(folder: str, name: str) -> bytes:
    """Return the bytes of an image.

    Raises:
        ValueError: if it cannot be read or is outside the directory: a table must not give access
            to the whole disk.
    """
    path = Path(folder, name)
    root = Path(folder).resolve()
    try:
        target = path.resolve()
        inside = is_inside(root, target)
        if inside:
            return read_bounded(target)
    except (ValueError, OSError, RuntimeError) as error:  # RuntimeError: links in a circle
        raise ValueError(f"{path}: {error}") from None
    link = f"a link to {target}, " if path.is_symlink() else ""
    raise ValueError(f"{name} is {link}outside of {root}; put the file itself there")


def image_pieces(
    paths: tuple[str, str],
    fraction: tuple[float, float],
    identity: Any,
    names: Sequence[Sequence[str]],
    piece_bytes: int,
) -> list[Piece]:
    """Divide rows into pieces, each identified by its files.

    Args:
        paths: the table and the directory.
        fraction: the fraction of the rows to divide.
        identity: other properties that the rows of a piece depend on.
        names: the image names of each row.
        piece_bytes: the approximate size of a piece in bytes.
    """
    rows = range(*stretch(len(names), fraction))
    files = {i: [os.path.join(paths[1], name) for name in names[i] if name] for i in rows}
    sizes = [sum(map(local_file_size, of_row)) for of_row in files.values()]
    return [
        Piece(
            paths,
            ((group[0], group[-1] + 1),),
            size,
            digest_plain([identity, [size_and_mtime(file) for i in group for file in files[i]]]),
        )
        for group, size in group_by_size(list(rows), sizes, piece_bytes)
    ]
