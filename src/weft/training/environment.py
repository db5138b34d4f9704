"""The environment that affects the exact results of a run: threads, PyTorch, processor and
accelerator.
"""

import os
import platform
import random
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

# required for deterministic cuBLAS (PyTorch: Reproducibility)
CUBLAS_WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"


def describe_environment(device: torch.device) -> dict[str, Any]:
    """Return the description of the environment that a checkpoint records."""
    gpu = f" ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else ""
    return {
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "cpu": cpu_name(),
        "device": f"{device.type}{gpu}",
    }


@cache
def cpu_name() -> str:
    """Return the name of the processor, and the instructions that PyTorch uses on it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next(
            line.partition(":")[2].strip() for line in lines if line.startswith("model name")
        )
    except (OSError, StopIteration):
        name = platform.processor() or platform.machine()
    return f"{name} ({torch.backends.cpu.get_cpu_capability()})"


def environment_changes(before: dict[str, Any], now: dict[str, Any]) -> str | None:
    """Return one line about changes since the checkpoint was saved, or None."""
    changed = [name for name in now if name in before and before[name] != now[name]]
    if not changed:
        return None
    changes = ", ".join(f"{name} changed from {before[name]} to {now[name]}" for name in changed)
    keep = f"; --set threads={before['threads']} keeps their number" if "threads" in changed else ""
    return f"{changes}: the last bits of results may differ{keep}"


@contextmanager
def configured_environment(threads: int | None, deterministic: bool) -> Iterator[None]:
    """Set the number of threads and the choice of algorithms of a recipe within the block."""
    threads_before = torch.get_num_threads()
    deterministic_before = torch.are_deterministic_algorithms_enabled()
    workspace = os.environ.get(CUBLAS_WORKSPACE)
    warns = torch.is_deterministic_algorithms_warn_only_enabled()
    if threads is not None:
        torch.set_num_threads(threads)
    if deterministic:
        # read once, before the first use of cuBLAS
        os.environ.setdefault(CUBLAS_WORKSPACE, ":4096:8")
        torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.set_num_threads(threads_before)
        torch.use_deterministic_algorithms(deterministic_before, warn_only=warns)
        if workspace is None:
            os.environ.pop(CUBLAS_WORKSPACE, None)


@contextmanager
def restored_random_state(device: torch.device) -> Iterator[None]:
    """Restore the global random generators of Python, NumPy and PyTorch (of the CPU and the device)
    at the end of the block.
    """
    python = random.getstate()
    numpy = np.random.get_state()
    devices = [] if device.type == "cpu" else [device]
    try:
        with torch.random.fork_rng(devices, device_type=device.type if devices else "cuda"):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
