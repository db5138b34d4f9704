"""What the bits of a run depend on beside its recipe: threads, PyTorch, processor and accelerator."""
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch

from .. import recipe as R

WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"      # without it, cuBLAS may choose another algorithm in each run (PyTorch: Reproducibility)


def environment(device: torch.device) -> dict[str, Any]:
    """What a checkpoint records."""
    accelerator = torch.cuda.get_device_name(device) if device.type == "cuda" else None
    return {"threads": torch.get_num_threads(), "torch": torch.__version__, "cpu": cpu(), "accelerator": accelerator}


@cache
def cpu() -> str:
    """The processor's name, and the instructions that PyTorch uses on it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        name = platform.processor() or platform.machine()
    return f"{name} ({torch.backends.cpu.get_cpu_capability()})"


def changes(before: dict[str, Any], now: dict[str, Any]) -> str | None:
    """One line about what is not as it was; None where all is."""
    changed = [name for name in now if name in before and before[name] != now[name]]
    if not changed:
        return None
    said = ", ".join(f"{name} {before[name] or 'none'} until now, {now[name] or 'none'} from here on" for name in changed)
    keep = f"; --set threads={before['threads']} keeps their number" if "threads" in changed else ""
    return f"{said}: bits may differ{keep}"


@contextmanager
def configured(recipe: R.Recipe) -> Iterator[None]:
    """The recipe's number of threads and its choice of algorithms, for this process and no longer than needed."""
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    if recipe.threads is not None:
        torch.set_num_threads(recipe.threads)
    if recipe.deterministic:
        os.environ.setdefault(WORKSPACE, ":4096:8")            # read once, before the first use of cuBLAS
        torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(deterministic)
