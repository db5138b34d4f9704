"""Throughput: peak FLOP/s of this machine, and the load of experts."""

import time
from math import log

import torch


def peak_flops(precision: str, device: torch.device) -> float:
    """Return the best FLOP/s of several large matrix products on this machine."""
    n = 2048
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    a = torch.ones(n, n, dtype=dtype, device=device)
    b = torch.ones(n, n, dtype=dtype, device=device)
    best = float("inf")
    for _ in range(5):
        begin = time.perf_counter()
        a @ b
        if device.type != "cpu":
            torch.accelerator.synchronize(device)
        best = min(best, time.perf_counter() - begin)
    return 2 * n**3 / best


def expert_load(load: list[float], sizes: list[int]) -> dict[str, float] | None:
    """Return the entropy of the experts' token shares (1: uniform; 0: one expert gets all tokens;
    mean over layers), and the largest share in any layer.
    """
    if not sizes:
        return None
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    shares = [
        [n / max(sum(load[a : a + size]), 1) for n in load[a : a + size]]
        for a, size in zip(starts, sizes, strict=True)
    ]
    entropies = [-sum(s * log(s) for s in layer if s) / log(max(len(layer), 2)) for layer in shares]
    return {"entropy": sum(entropies) / len(entropies), "max_share": max(map(max, shares))}
