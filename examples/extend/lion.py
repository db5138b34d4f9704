"""An optimiser of one's own: Lion, the sign of a momentum (Chen et al. 2023, arXiv:2302.06675,
algorithm 2).

weft train RECIPE --code examples/extend/lion.py --set 'optimiser={"kind": "Lion", "lr": 1e-4}'
"""

from collections.abc import Iterator
from typing import Any

import torch

import weft


@weft.register
class Lion(weft.OptimiserSpec):
    """x <- x - lr · (sign(β1 · m + (1 - β1) · g) + weight_decay · x); m <- β2 · m + (1 - β2)
    · g.
    """

    lr: weft.spec.PositiveFloat
    betas: tuple[float, float] = (0.9, 0.99)
    weight_decay: weft.spec.Probability = 0.0
    states_per_parameter = 1.0


class LionOptimizer(torch.optim.Optimizer):
    def __init__(self, groups: list[dict[str, Any]], lr: float, betas: tuple[float, float]) -> None:
        super().__init__(groups, {"lr": lr, "betas": betas, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            (first, second) = group["betas"]
            lr = group["lr"]
            for p in (p for p in group["params"] if p.grad is not None):
                m = self.state[p].setdefault("momentum", torch.zeros_like(p))
                update = (first * m + (1 - first) * p.grad).sign()
                p.mul_(1 - lr * group["weight_decay"]).sub_(lr * update)
                m.mul_(second).add_((1 - second) * p.grad)


@weft.implements(Lion)
def build_lion(lion: Lion, parameters: Any) -> Iterator[torch.optim.Optimizer]:
    yield LionOptimizer(parameters.groups(lion), lr=lion.lr, betas=lion.betas)
