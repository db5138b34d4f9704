"""Local copies of shards that lie in object storage, in $WEFT_CACHE or ~/.cache/weft.

Data may be larger than the disk: before a download the copies that were read longest ago are
removed until the new one fits into $WEFT_CACHE_GB, or leaves a twentieth of the disk free. A file
that another process has open stays readable until it closes it."""

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
    """Return where the copy of a file of prepared data lies."""
    folder = hashlib.sha256(f"{address} {fingerprint}".encode()).hexdigest()[:24]
    return cache_root() / folder / name


def cache_limit() -> float | None:
    """Return the bytes that the copies may take; None: as many as the disk has room for."""
    gigabytes = os.environ.get("WEFT_CACHE_GB", "")
    try:
        limit = float(gigabytes) if gigabytes else None
    except ValueError:
        limit = -1.0
    if limit is not None and not limit > 0:
        raise ValueError(f"WEFT_CACHE_GB={gigabytes}: give a number of gigabytes above 0")
    return None if limit is None else limit * 1e9


def read_times(root: Path) -> Iterator[tuple[float, int, Path]]:
    """Yield when each copy was last read, its size and its path."""
    for path in root.rglob(f"*{SUFFIX}"):
        with suppress(FileNotFoundError):  # another process makes room too
            status = path.stat()
            yield max(status.st_atime, status.st_mtime), status.st_size, path


def make_room(size: int) -> None:
    """Remove the copies that were read longest ago, until `size` bytes more fit."""
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
        f"{where} has no room for a shard of {size:,} bytes; give more, or set WEFT_CACHE to a "
        "larger disk"
    )
