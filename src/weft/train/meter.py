"""The machine's matrix peak."""
import time

import torch


def peak(precision: str, device: torch.device) -> float:
    """FLOPs a second of one large matrix product on this machine: the best of a few."""
    n, dtype = 2048, torch.bfloat16 if precision == "bf16" else torch.float32
    a, b = torch.ones(n, n, dtype=dtype, device=device), torch.ones(n, n, dtype=dtype, device=device)
    best = float("inf")
    for _ in range(5):
        begin = time.perf_counter()
        a @ b
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        best = min(best, time.perf_counter() - begin)
    return 2 * n ** 3 / best
