"""Files of an untrusted folder: regular files within size limits, none outside the folder.

Hugging Face's cache stores a model as links, snapshots/<revision>/config.json ->
../../blobs/<hash>: only these links may point outside a folder, and only to blobs of the same
repository."""

import os
from pathlib import Path

MAX_TEXT_BYTES = 1 << 23  # bytes of a JSON file that describes a model
MAX_TABLE_BYTES = 1 << 26  # bytes of a JSON file that lists a vocabulary or tensors


def find_file(folder: Path, name: str) -> Path | None:
    """Return a regular file of a folder, or None if it does not exist.

    Raises ValueError for a pipe, a device, a folder, a dangling link, or a link that points outside
    the folder."""
    path = folder / name
    if not os.path.lexists(path):
        return None
    try:
        target = path.resolve()
    except (OSError, RuntimeError):  # circular links
        raise ValueError(f"{path} is a link to a missing file; replace it by the file") from None
    if not target.is_file():
        raise ValueError(
            f"{path} is {'not a regular file' if target.exists() else 'a link to a missing file'}; "
            "replace it by the file"
        )
    if not is_inside(folder.resolve(), target):
        raise ValueError(
            f"{path} is a link to {target}, outside the folder; replace the link by the file"
        )
    return path


def is_inside(root: Path, target: Path) -> bool:
    """Return whether a file is in the folder, or in the blobs of the cache if the folder is a
    snapshot."""
    snapshot = next(
        (part for part in (root, *root.parents) if part.parent.name == "snapshots"), None
    )
    return target.is_relative_to(root) or (
        snapshot is not None and target.is_relative_to(snapshot.parent.parent / "blobs")
    )


def read_file(folder: Path, name: str, limit: int = MAX_TEXT_BYTES) -> str:
    """Return the text of a file in a folder."""
    path = find_file(folder, name)
    if path is None:
        raise ValueError(f"{folder / name} does not exist")
    return read_bounded(path, limit)


def read_bounded(path: Path, limit: int) -> str:
    """Return the text of a regular file with at most `limit` bytes."""
    if not path.is_file():
        raise ValueError(
            f"{path} is not a regular file" if path.exists() else f"{path} does not exist"
        )
    if path.stat().st_size > limit:
        raise ValueError(
            f"{path} has {path.stat().st_size:,} bytes; the limit for such a file is {limit:,} "
            "bytes"
        )
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} is not UTF-8: byte 0x{error.object[error.start]:02x} at offset {error.start}"
        ) from None
