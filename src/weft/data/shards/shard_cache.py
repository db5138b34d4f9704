"""The cache of shards from object storage, in $WEFT_CACHE or ~/.cache/weft.

Data may be larger than the disk: before a download, the least recently read copies are removed
until the new one fits into $WEFT_CACHE_GB, or leaves a twentieth of the disk free. A file that
another process has open stays readable until it closes it.
"""

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

FREE_FRACTION = 0.05  # of the disk, where no limit is given
SUFFIX = ".arrow"


def cache_root() -> Path:
    return Path(os.environ.get("WEFT_CACHE", Path.home() / ".cache" / "weft"))


def cached_file(address: str, fingerprint: str, name: str) -> Path:
    """Return the path of the local copy of a file."""
    folder = hashlib.sha256(f"{address} {fingerprint}".encode()).hexdigest()[:24]
    return cache_root() / folder / name


def cache_limit() -> float | None:
    """Return the largest size of all copies in bytes; None: limited by the disk."""
    gigabytes = os.environ.get("WEFT_CACHE_GB", "")
    try:
        limit = float(gigabytes) if gigabytes else None
    except ValueError:
        limit = -1.0
    if limit is not None and not limit > 0:
        raise ValueError(f"WEFT_CACHE_GB={gigabytes} must be a number above 0, in gigabytes")
    return None if limit is None else limit * 1e9


def read_times(root: Path) -> Iterator[tuple[float, int, Path]]:
    """Yield the last access, size and path of each copy."""
    for path in root.rglob(f"*{SUFFIX}"):
        with suppress(FileNotFoundError):  # another process removes copies too
            status = path.stat()
            yield max(status.st_atime, status.st_mtime), status.st_size, path


def make_room(size: int) -> None:
    """Remove the least recently read copies until `size` more bytes fit."""
    root = cache_root()
    limit = cache_limit()
    copies = sorted(read_times(root))
    used = sum(copy for _, copy, _ in copies)
    if limit is not None and size > limit:
        raise no_room(f"WEFT_CACHE_GB={os.environ['WEFT_CACHE_GB']}", size)
    for _, copy, path in copies:
        if fits(root, size, used, limit):
            return
        path.unlink(missing_ok=True)
        used -= copy
    if size > shutil.disk_usage(root).free:
        raise no_room(str(root), size)


def fits(root: Path, size: int, used: int, limit: float | None) -> bool:
    disk = shutil.disk_usage(root)
    if limit is not None:
        return used + size <= limit and size <= disk.free
    return size <= disk.free - FREE_FRACTION * disk.total


def no_room(where: str, size: int) -> ValueError:
    return ValueError(
        f"{where} has no space for a shard of {size:,} bytes; free some, or set WEFT_CACHE to a "
        "larger disk"
    )
