"""Files of an untrusted folder: regular files within size limits, none outside the folder.

Hugging Face's cache stores a model as links, snapshots/<revision>/config.json ->
../../blobs/<hash>: only these may lead out of a folder, and only to the blobs of the same
repository."""

import os
from pathlib import Path

MAX_TEXT_BYTES = 1 << 23  # bytes of a JSON file that describes a model
MAX_TABLE_BYTES = 1 << 26  # of one that lists a vocabulary or tensors


def find_file(folder: Path, name: str) -> Path | None:
    """Return a regular file of a folder, or None if there is none of this name.

    Raises ValueError for a pipe, a device, a folder, a dangling link, or a link out of the
    folder."""
    path = folder / name
    if not os.path.lexists(path):
        return None
    try:
        target = path.resolve()
    except (OSError, RuntimeError):  # links in a circle
        raise ValueError(f"{path} is a link that leads nowhere") from None
    if not target.is_file():
        raise ValueError(
            f"{path} is {'not a regular file' if target.exists() else 'a link that leads nowhere'}"
        )
    if not is_inside(folder.resolve(), target):
        raise ValueError(
            f"{path} is a link to {target}, outside of the folder; put the file itself there"
        )
    return path


def is_inside(root: Path, target: Path) -> bool:
    """Return whether a file is in the folder, or in the blobs of the cache that the folder is a
    snapshot of."""
    snapshot = next(
        (part for part in (root, *root.parents) if part.parent.name == "snapshots"), None
    )
    return target.is_relative_to(root) or (
        snapshot is not None and target.is_relative_to(snapshot.parent.parent / "blobs")
    )


def read_file(folder: Path, name: str, limit: int = MAX_TEXT_BYTES) -> str:
    """Return the text of a file of a folder."""
    path = find_file(folder, name)
    if path is None:
        raise ValueError(f"{folder / name} does not exist")
    return read_bounded(path, limit)


def read_bounded(path: Path, limit: int) -> str:
    """Return the text of a regular file of at most `limit` bytes."""
    if not path.is_file():
        raise ValueError(
            f"{path} is not a regular file" if path.exists() else f"{path} does not exist"
        )
    if path.stat().st_size > limit:
        raise ValueError(
            f"{path} has {path.stat().st_size:,} bytes, and at most {limit:,} are allowed for "
            "such a file"
        )
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} is not UTF-8: byte 0x{error.object[error.start]:02x} at {error.start}"
        ) from None
