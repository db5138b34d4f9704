"""Memory: reuse of large allocations between steps, and available memory."""

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

# mallopt's parameters: malloc.h of glibc
MMAP_THRESHOLD = -3
TRIM_THRESHOLD = -1
# to which glibc raises its own: DEFAULT_MMAP_THRESHOLD_MAX of malloc.c
LARGEST_MMAP_THRESHOLD = 32 << 20


@contextmanager
def keep_large_allocations() -> Iterator[bool]:
    """Keep blocks above 32 MB in the process. By default, glibc returns them to the kernel when
    they are freed, and each step faults in the gradient of the token table page by page, which
    takes an eighth of a step with short texts. At the end of the block, memory is released and
    glibc's thresholds are those of a process with large blocks. Yields False without glibc.
    """
    library = ctypes.CDLL(None) if sys.platform == "linux" else None
    if library is None or not hasattr(library, "gnu_get_libc_version"):
        yield False
        return
    accepted = library.mallopt(MMAP_THRESHOLD, 1 << 30)
    accepted = library.mallopt(TRIM_THRESHOLD, (1 << 31) - 1) and accepted
    try:
        yield bool(accepted)
    finally:
        library.mallopt(MMAP_THRESHOLD, LARGEST_MMAP_THRESHOLD)
        library.mallopt(TRIM_THRESHOLD, 2 * LARGEST_MMAP_THRESHOLD)
        library.malloc_trim(0)


# Free memory


def available_bytes(device: torch.device, ranks: int = 1) -> int:
    """Return the bytes available to a rank: of its GPU, or of this machine's memory, shared by
    `ranks`.
    """
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        free = 1024 * sum(int(lines[name].split()[0]) for name in ("MemAvailable", "SwapFree"))
    except (OSError, KeyError, ValueError):
        free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([free, *cgroup_available()]) // ranks


def cgroup_available(root: Path = Path("/sys/fs/cgroup")) -> list[int]:
    """Return the bytes available within the container's limits, page cache included."""
    try:
        limit = (root / "memory.max").read_text()
        memory_stat = (root / "memory.stat").read_text()
        return [int(limit) - int(dict(map(str.split, memory_stat.splitlines()))["anon"])]
    except (OSError, KeyError, ValueError):
        return []  # no limit, or an unreadable one
