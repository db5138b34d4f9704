"""The machine's matrix peak."""

import time
from math import log

import torch


def peak_flops(precision: str, device: torch.device) -> float:
    """FLOPs a second of one large matrix product on this machine: the best of a few."""
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
    """Of the tokens per expert, layer after layer: the entropy of the shares (1: all alike; 0: one
    expert gets all; the mean over the layers), and the largest share in any layer.
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
