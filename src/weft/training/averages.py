"""Averaged or selected weights: moving averages (Polyak), the mean of the last checkpoints (Vaswani
et al. 2017, section 6.1), or the best weights so far.
"""

from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Any

import torch
from torch import Tensor, nn

from .. import recipe as R
from ..recipe.metrics import greater_is_better
from ..support.registry import implementation
from .checkpoints.parts import SavedTensor, read_into

SavedCopies = Mapping[str, SavedTensor | Tensor]


class WeightCopy:
    """A copy of the trained weights, updated during training."""

    def __init__(self, module: nn.Module) -> None:
        self.live = {n: p for n, p in module.named_parameters() if p.requires_grad}
        self.copies = {n: p.detach().clone() for n, p in self.live.items()}

    def update(self) -> None:
        """Update the copy after a step; does nothing by default."""

    def facts(self) -> dict[str, Any]:
        return {}

    def restore(self, copies: SavedCopies, facts: dict[str, Any]) -> None:
        for name, value in copies.items():
            read_into(self.copies[name], value)


class ExponentialMovingAverage(WeightCopy):
    """average <- d * average + (1 - d) * weights, in float32 at least."""

    def __init__(self, average: R.EMA, module: nn.Module) -> None:
        super().__init__(module)
        self.decay = average.decay
        self.updates = 0

    @torch.no_grad()
    def update(self) -> None:
        self.updates += 1
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
        torch._foreach_lerp_(list(self.copies.values()), list(self.live.values()), 1 - decay)

    def facts(self) -> dict[str, Any]:
        return {"average_updates": self.updates}

    def restore(self, copies: SavedCopies, facts: dict[str, Any]) -> None:
        super().restore(copies, facts)
        self.updates = facts["average_updates"]


class BestWeights(WeightCopy):
    """The weights with the best validation metric so far."""

    def __init__(self, average: R.BestCheckpoint, module: nn.Module) -> None:
        super().__init__(module)
        self.metric = average.metric
        self.best: dict[str, Any] | None = None  # the metrics and step of the best weights

    def update_best(self, step: int, metrics: dict[str, float]) -> None:
        if self.metric not in metrics:
            raise ValueError(
                f"average.metric = {self.metric!r}: validation has no such metric; choose one of "
                f"{', '.join(metrics)}"
            )
        sign = 1 if greater_is_better(self.metric) else -1
        value = metrics[self.metric]
        is_better = self.best is None or sign * value > sign * self.best[self.metric]
        if isfinite(value) and is_better:  # NaN would never be replaced
            self.best = {**metrics, "step": step}
            self.copies = {n: p.detach().clone() for n, p in self.live.items()}

    def facts(self) -> dict[str, Any]:
        return {"best": self.best}

    def restore(self, copies: SavedCopies, facts: dict[str, Any]) -> None:
        super().restore(copies, facts)
        self.best = facts["best"]


def build_average(average: R.WeightAverage | None, module: nn.Module) -> WeightCopy | None:
    """Build the weight copy that each step updates; None without an average."""
    if average is None:
        return None
    copy: WeightCopy | None = implementation(average)(average, module)
    return copy


def no_copy(average: R.AverageLast, module: nn.Module) -> None:
    """Return None: the checkpoints are averaged at the end of the run."""


def average_states(states: Iterable[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Return the mean of several sets of weights; integer tensors are taken from the last."""
    total: dict[str, Tensor] = {}
    count = 0
    for state in states:
        count += 1
        for name, value in state.items():
            if value.is_floating_point() and count > 1:
                total[name] += value.double()
            else:
                total[name] = value.double() if value.is_floating_point() else value
    return {
        n: (t / count).to(value.dtype) if t.is_floating_point() else t
        for n, t in total.items()
        for value in [state[n]]
    }
