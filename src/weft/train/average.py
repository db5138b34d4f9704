"""Averages of weights: along the way (Polyak), and over the last checkpoints (Vaswani et al. 2017, section 6.1)."""
from collections.abc import Iterable

import torch
from torch import Tensor, nn


class MovingAverage:
    """average <- decay * average + (1 - decay) * weights, in float32 at least."""

    def __init__(self, module: nn.Module, decay: float) -> None:
        self.decay = decay
        self.live = {n: p for n, p in module.named_parameters() if p.requires_grad}
        self.mean = {n: p.detach().clone() for n, p in self.live.items()}

    @torch.no_grad()
    def update(self) -> None:
        torch._foreach_lerp_(list(self.mean.values()), list(self.live.values()), 1 - self.decay)

    def restore(self, mean: dict[str, Tensor]) -> None:
        for name, value in mean.items():
            self.mean[name].copy_(value)


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
