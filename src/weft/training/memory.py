"""Memory: allocations that are reused between steps, and the refusal of a run that does not fit."""

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from ..plan.cost import MemoryEstimate

MMAP_THRESHOLD, TRIM_THRESHOLD = -3, -1  # mallopt's numbers: malloc.h of glibc
LARGEST_MMAP_THRESHOLD = (
    32 << 20
)  # to which glibc raises its own: DEFAULT_MMAP_THRESHOLD_MAX of malloc.c


@contextmanager
def keep_large_allocations() -> Iterator[bool]:
    """glibc gives every block above 32 MB back to the kernel at once, and each step then takes the gradient of a vocabulary's table again
    page by page: with short texts, an eighth of a step. Inside, such blocks stay with the process; at the end they go back, and glibc
    has the thresholds that it sets itself in a process with large blocks. False where there is no glibc."""
    library = ctypes.CDLL(None) if sys.platform == "linux" else None
    if library is None or not hasattr(library, "gnu_get_libc_version"):
        yield False
        return
    kept = library.mallopt(MMAP_THRESHOLD, 1 << 30)
    kept = library.mallopt(TRIM_THRESHOLD, (1 << 31) - 1) and kept
    try:
        yield bool(kept)
    finally:
        library.mallopt(MMAP_THRESHOLD, LARGEST_MMAP_THRESHOLD)
        library.mallopt(TRIM_THRESHOLD, 2 * LARGEST_MMAP_THRESHOLD)
        library.malloc_trim(0)


# Room for a run

TOLERATED_OVERESTIMATE = (
    1.5  # an estimate may be this much above what is free before a run is refused
)


def available_bytes(device: torch.device, ranks: int = 1) -> int:
    """Bytes that a rank may still take: of its own graphics card, or of this machine's memory, which `ranks` share."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        free = 1024 * sum(int(lines[name].split()[0]) for name in ("MemAvailable", "SwapFree"))
    except (OSError, KeyError, ValueError):
        free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([free, *cgroup_available()]) // ranks


def cgroup_available(root: Path = Path("/sys/fs/cgroup")) -> list[int]:
    """What a container's limit leaves beside what its processes hold; the cache of files gives way."""
    try:
        most, memory_stat = (root / "memory.max").read_text(), (root / "memory.stat").read_text()
        return [int(most) - int(dict(map(str.split, memory_stat.splitlines()))["anon"])]
    except (OSError, KeyError, ValueError):
        return []  # no limit, or none that says so


def check_memory(name: str, size_field: str, need: MemoryEstimate, free: int) -> None:
    """Raise ValueError before anything is allocated. An estimate is only that: what might work is tried.

    Args:
        name: of the recipe.
        size_field: of its batching, which sets the rows per step.
        need: of one rank.
        free: bytes that the rank may take.
    """
    if need.total <= TOLERATED_OVERESTIMATE * free:
        return
    room = free - need.state_bytes
    if room < 0:
        way = "a smaller model"
    elif room < need.batch_bytes:
        way = f"fewer rows per step, with --set batch.{size_field}=…"
    else:
        fit = max(1, (room - need.batch_bytes) // max(need.activations_per_row, 1))
        way = (
            f"--set micro_batch_size={1 << fit.bit_length() - 1}"
            if need.rows > 1
            else "shorter rows, with --set batch.length=…"
        )
    size = 1e9
    raise ValueError(
        f"{name} needs about {need.total / size:,.1f} GB of memory, and {free / size:,.1f} GB are free: "
        f"{need.state_bytes / size:,.1f} GB for weights, gradients and optimiser, {need.batch_bytes / size:,.1f} GB for the batch, "
        f"{need.activations_per_row * need.rows / size:,.1f} GB for the activations of {need.rows:,} rows per forward pass; "
        f"give {way}"
    )
