"""What a run costs: FLOPs of a step, the machine's matrix peak, what is left."""
import time
from math import log

import torch

from .. import recipe as R
from .. import spec as S


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


def expert_load(load: list[float], sizes: list[int]) -> dict[str, float] | None:
    """Of the tokens per expert, layer after layer: the entropy of the shares (1: all alike; 0: one expert gets all; the mean over the
    layers), and the largest share in any layer."""
    if not sizes:
        return None
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    shares = [[n / max(sum(load[a:a + size]), 1) for n in load[a:a + size]] for a, size in zip(starts, sizes, strict=True)]
    entropies = [-sum(s * log(s) for s in layer if s) / log(max(len(layer), 2)) for layer in shares]
    return {"entropy": sum(entropies) / len(entropies), "max_share": max(map(max, shares))}


def step_flops(recipe: R.Recipe, length: int | None = None) -> float:
    """Forward and twice that backward, of one whole step over all ranks; rows taken as full."""
    if not isinstance(recipe.model.source, S.Tokens):
        return 3.0 * recipe.model.flops(batch=rows(recipe))
    length = length or recipe.batch.length
    many = rows(recipe) * recipe.batch.length // length
    target = length if recipe.model.encoder is not None and recipe.model.decoder is not None else None
    total = 3.0 * recipe.model.flops(batch=many, length=length, target=target)
    if isinstance(recipe.objective, R.ReplacedTokens):
        total += 3.0 * recipe.objective.generator.flops(batch=many, length=length)
    return total


def rows(recipe: R.Recipe) -> int:
    return recipe.batch.count if not isinstance(recipe.batch, R.Budget) else max(1, recipe.batch.tokens // recipe.batch.length)


def run_flops(recipe: R.Recipe) -> float:
    """Of all steps, whatever their lengths."""
    ends = [(share * recipe.steps, length) for share, length in recipe.lengths] or [(float(recipe.steps), recipe.batch.length)]
    begin, total = 0.0, 0.0
    for end, length in ends:
        total += (end - begin) * step_flops(recipe, length)
        begin = end
    return total


def checkpoint_bytes(recipe: R.Recipe, parameters: int) -> int:
    """Weights, the optimiser's two moments (one for momentum alone, few where factored), and the average."""
    moments = 0.1 if isinstance(recipe.optimiser, R.Adafactor) else 1 if isinstance(recipe.optimiser, R.SGD) else 2
    return int(4 * parameters * (1 + moments + isinstance(recipe.average, R.Moving | R.Best)))
