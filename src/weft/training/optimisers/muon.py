"""Muon with matrices of one shape orthogonalised together (Jordan et al. 2024, who flatten
convolutions too; the scale is that of arXiv:2502.16982).
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
STEPS = 5
EPS = 1e-7


def orthogonalise(matrix: Tensor) -> Tensor:
    """Move the singular values of each matrix (…, rows, columns), rows ≤ columns, near 1: X <- aX +
    (bXXᵀ + c(XXᵀ)²)X.
    """
    a, b, c = COEFFICIENTS
    x: Tensor = matrix / torch.linalg.vector_norm(matrix, dim=(-2, -1), keepdim=True).clamp(min=EPS)
    for _ in range(STEPS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * (gram @ gram)) @ x
    return x


class BatchedMuon(Optimizer):
    """torch.optim.Muon at AdamW's scale, faster: one batched product for all matrices of a shape,
    instead of one per matrix.

    On CPU the products are in float32: few CPUs multiply bfloat16 matrices of this size faster, and
    many far slower.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        lr: float,
        weight_decay: float,
        momentum: float = 0.95,
    ) -> None:
        defaults = {"lr": lr, "weight_decay": weight_decay, "momentum": momentum}
        super().__init__(list(parameters), defaults)

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        assert closure is None, "the loss and its gradients are computed before the step"
        for group in self.param_groups:
            trained = [p for p in group["params"] if p.grad is not None]
            if not trained:
                continue
            gradients = [p.grad for p in trained]
            averages = []
            for p in trained:
                state = self.state[p]
                if "momentum_buffer" not in state:
                    state["momentum_buffer"] = torch.zeros_like(p)
                averages.append(state["momentum_buffer"])
            torch._foreach_lerp_(averages, gradients, 1 - group["momentum"])
            updates = torch._foreach_lerp(gradients, averages, group["momentum"])  # Nesterov's
            torch._foreach_mul_(trained, 1 - group["lr"] * group["weight_decay"])
            for same in indices_by_shape(trained):
                subtract_orthogonal(
                    [trained[i] for i in same], [updates[i] for i in same], group["lr"]
                )


def subtract_orthogonal(parameters: list[Tensor], updates: list[Tensor], lr: float) -> None:
    """Subtract the orthogonal factors of updates of one shape; of a convolution, those of its
    matrix from patches to outputs.
    """
    shape = parameters[0].shape
    rows = shape[0]
    columns = shape[1:].numel()
    update = (
        torch.stack([u.flatten(1) for u in updates]) if len(updates) > 1 else updates[0].flatten(1)
    )
    update = update.mT if rows > columns else update
    update = update.float() if update.device.type == "cpu" else update.bfloat16()
    factor = orthogonalise(update)
    factor = (factor.mT if rows > columns else factor).to(parameters[0].dtype)
    if isinstance(parameters[0], DTensor):  # products may change the placements
        factor = factor.redistribute(placements=parameters[0].placements)  # type: ignore[attr-defined]
    factors = [f.reshape(shape) for f in (factor.unbind() if len(updates) > 1 else [factor])]
    # The root mean square of AdamW's updates, so that its rates fit
    torch._foreach_add_(parameters, factors, alpha=-lr * 0.2 * max(rows, columns) ** 0.5)


def indices_by_shape(parameters: list[Tensor]) -> list[list[int]]:
    """Indices of parameters of equal shape; a sharded one is alone, since products of its shards
    need each other.
    """
    groups: defaultdict[Any, list[int]] = defaultdict(list)
    for i, p in enumerate(parameters):
        groups[(i,) if isinstance(p, DTensor) else tuple(p.shape)].append(i)
    return list(groups.values())
