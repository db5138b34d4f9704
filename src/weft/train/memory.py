"""Memory: large tensors kept from one step to the next, and a run that cannot fit refused."""
import ctypes
import os
import sys
from pathlib import Path

import torch

from .. import recipe as R
from ..cost import Memory

MMAP_THRESHOLD, TRIM_THRESHOLD = -3, -1    # mallopt's numbers: malloc.h of glibc


def keep_blocks() -> bool:
    """glibc gives every block above 32 MB back to the kernel at once, and each step then takes the gradient of a vocabulary's table again
    page by page: with short texts, an eighth of a step. Here such blocks stay with the process. False where there is no glibc."""
    if not sys.platform.startswith("linux"):
        return False
    library = ctypes.CDLL(None)
    if not hasattr(library, "gnu_get_libc_version"):
        return False
    return bool(library.mallopt(MMAP_THRESHOLD, 1 << 30) and library.mallopt(TRIM_THRESHOLD, (1 << 31) - 1))


# Room for a run

MARGIN = 1.5                               # an estimate may be this much above what is free before a run is refused


def available(device: torch.device, ranks: int = 1) -> int:
    """Bytes that a rank may still take: of its own graphics card, or of this machine's memory, which `ranks` share."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        free = 1024 * sum(int(lines[name].split()[0]) for name in ("MemAvailable", "SwapFree"))
    except (OSError, KeyError, ValueError):
        free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([free, *group_room()]) // ranks


def group_room(root: Path = Path("/sys/fs/cgroup")) -> list[int]:
    """What a container's limit leaves beside what its processes hold; the cache of files gives way."""
    try:
        most, held = (root / "memory.max").read_text(), (root / "memory.stat").read_text()
        return [int(most) - int(dict(map(str.split, held.splitlines()))["anon"])]
    except (OSError, KeyError, ValueError):
        return []                          # no limit, or none that says so


def refuse_what_cannot_fit(recipe: R.Recipe, need: Memory, free: int) -> None:
    """Before anything is allocated. An estimate is only that: what might work is tried."""
    if need.total <= MARGIN * free:
        return
    room = free - need.state
    if room < 0:
        way = "a smaller model"
    elif room < need.batch:
        way = f"fewer rows per step, with --set batch.{'tokens' if isinstance(recipe.batch, R.Budget) else 'count'}=…"
    else:
        fit = max(1, (room - need.batch) // max(need.row, 1))
        way = f"--set micro={1 << fit.bit_length() - 1}" if need.rows > 1 else "shorter rows, with --set batch.length=…"
    size = 1e9
    raise ValueError(f"{recipe.name} needs about {need.total / size:,.1f} GB of memory, and {free / size:,.1f} GB are free: "
                     f"{need.state / size:,.1f} GB for weights, gradients and optimiser, {need.batch / size:,.1f} GB for the batch, "
                     f"{need.row * need.rows / size:,.1f} GB for the activations of {need.rows:,} rows per forward pass; "
                     f"give {way}")
