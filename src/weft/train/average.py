"""Weights that are kept beside the last: averaged along the way (Polyak), over the last checkpoints (Vaswani et al. 2017, section 6.1),
or the best so far."""
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from .. import recipe as R


class Kept:
    """A second set of the weights that are trained."""

    def __init__(self, module: nn.Module) -> None:
        self.live = {n: p for n, p in module.named_parameters() if p.requires_grad}
        self.held = {n: p.detach().clone() for n, p in self.live.items()}

    def facts(self) -> dict[str, Any]:
        return {}

    def restore(self, held: dict[str, Tensor], facts: dict[str, Any]) -> None:
        for name, value in held.items():
            self.held[name].copy_(value)


class MovingAverage(Kept):
    """average <- decay * average + (1 - decay) * weights, in float32 at least."""

    def __init__(self, module: nn.Module, decay: float) -> None:
        super().__init__(module)
        self.decay = decay

    @torch.no_grad()
    def update(self) -> None:
        torch._foreach_lerp_(list(self.held.values()), list(self.live.values()), 1 - self.decay)


class BestWeights(Kept):
    """The weights at the best look at the validation data so far."""

    def __init__(self, module: nn.Module, metric: str) -> None:
        super().__init__(module)
        self.metric = metric
        self.best: dict[str, Any] | None = None        # what was found at the best, and its step

    def consider(self, step: int, found: dict[str, float]) -> None:
        sign = -1 if self.metric == "loss" else 1
        if self.best is None or sign * found[self.metric] > sign * self.best[self.metric]:
            self.best = {**found, "step": step}
            self.held = {n: p.detach().clone() for n, p in self.live.items()}

    def facts(self) -> dict[str, Any]:
        return {"best": self.best}

    def restore(self, held: dict[str, Tensor], facts: dict[str, Any]) -> None:
        super().restore(held, facts)
        self.best = facts["best"]


def mean_of(states: Iterable[dict[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of several sets of weights; whole numbers are taken from the last."""
    total: dict[str, Tensor] = {}
    count = 0
    for state in states:
        count += 1
        for name, value in state.items():
            if value.is_floating_point() and count > 1:
                total[name] += value.double()
            else:
                total[name] = value.double() if value.is_floating_point() else value
    return {n: (t / count).to(value.dtype) if t.is_floating_point() else t for n, t in total.items() for value in [state[n]]}


def keep_of(recipe: R.Recipe) -> int:
    return max(recipe.save.keep, len(averaged(recipe)))


def averaged(recipe: R.Recipe) -> list[int]:
    """The steps whose checkpoints are averaged: the last that are due, so that a stop between two of them changes nothing."""
    if not isinstance(recipe.average, R.Last):
        return []
    return sorted({*range(recipe.save.every, recipe.steps, recipe.save.every), recipe.steps})[-recipe.average.count:]
