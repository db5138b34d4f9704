"""Description of this machine: threads, instructions, accelerators, memory, and the speed of matrix
products.
"""

import os
import time
from typing import Any

import torch

from ..nn.kernels.devices import resolve_device, resolve_dtype, resolve_precision
from .memory import available_bytes

# side of the matrices, and seconds per precision
SIDE = 512
SECONDS = 0.15


def describe_machine() -> dict[str, Any]:
    """Return the hardware that PyTorch detects, with the measured speed of fp32 and bf16 on the
    device that "auto" selects.
    """
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    device = accelerator or torch.device("cpu")
    return {
        "threads": torch.get_num_threads(),
        "cores": available_cores(),
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "amx": bool(torch.cpu._is_amx_tile_supported()),
        "avx512_bf16": bool(torch.cpu._is_avx512_bf16_supported()),
        "cuda": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
        "mps": bool(torch.backends.mps.is_available()),
        "device": device.type,
        "memory_bytes": available_bytes(torch.device("cpu")),
        "fp32_flops": matmul_flops(torch.float32, device),
        "bf16_flops": matmul_flops(torch.bfloat16, device),
    }


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def matmul_flops(dtype: torch.dtype, device: torch.device) -> float:
    """Return the FLOPs per second of the best of many small matrix products."""
    a_MK = torch.ones(SIDE, SIDE, dtype=dtype, device=device)
    best = float("inf")
    end = time.perf_counter() + SECONDS
    while (begin := time.perf_counter()) < end:
        a_MK @ a_MK
        if device.type != "cpu":
            torch.accelerator.synchronize(device)
        best = min(best, time.perf_counter() - begin)
    return 2 * SIDE**3 / best


def speed(precision: str) -> float:
    """Return the FLOP/s of matrix products on the device that "auto" selects, in a recipe's
    precision.
    """
    device = resolve_device()
    return matmul_flops(resolve_dtype(resolve_precision(precision, device)), device)
