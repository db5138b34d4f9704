"""Muon with matrices of one shape orthogonalised together (Jordan et al. 2024; the scale is that of arXiv:2502.16982)."""

from collections import defaultdict
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor


def orthogonalise(
    matrix: Tensor, coefficients: tuple[float, float, float], steps: int, eps: float
) -> Tensor:
    """Move the singular values of each matrix (…, rows, columns), rows ≤ columns, near 1: X <- aX + (bXXᵀ + c(XXᵀ)²)X."""
    a, b, c = coefficients
    x: Tensor = matrix / torch.linalg.vector_norm(matrix, dim=(-2, -1), keepdim=True).clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.mT
        x = a * x + (b * gram + c * (gram @ gram)) @ x
    return x


class BatchedMuon(torch.optim.Muon):
    """torch.optim.Muon, faster: one product for all matrices of a shape, where torch makes one for each.

    On CPU the products are in float32: few CPUs multiply bfloat16 matrices of this size faster, and many far slower.
    """

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        loss = None if closure is None else closure()
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
            updates = torch._foreach_lerp(gradients, averages, group["momentum"])
            torch._foreach_mul_(trained, 1 - group["lr"] * group["weight_decay"])
            for same in by_shape(trained):
                self.add_orthogonal(group, [trained[i] for i in same], [updates[i] for i in same])
        return loss

    def add_orthogonal(
        self, group: dict[str, Any], parameters: list[Tensor], updates: list[Tensor]
    ) -> None:
        """Add the orthogonal factors of updates of one shape."""
        rows, columns = parameters[0].shape
        update = torch.stack(updates) if len(updates) > 1 else updates[0]
        update = update.mT if rows > columns else update
        update = update.float() if update.device.type == "cpu" else update.bfloat16()
        factor = orthogonalise(update, group["ns_coefficients"], group["ns_steps"], group["eps"])
        factor = (factor.mT if rows > columns else factor).to(parameters[0].dtype)
        factors = factor.unbind() if len(updates) > 1 else (factor,)
        # The root mean square of AdamW's updates, so that its rates fit
        scale = 0.2 * max(rows, columns) ** 0.5
        torch._foreach_add_(parameters, list(factors), alpha=-group["lr"] * scale)


def by_shape(parameters: list[Tensor]) -> list[list[int]]:
    """Indices of parameters of equal shape; a sharded one is alone, since its shards' products need each other."""
    groups: defaultdict[Any, list[int]] = defaultdict(list)
    for i, p in enumerate(parameters):
        groups[(i,) if isinstance(p, DTensor) else tuple(p.shape)].append(i)
    return list(groups.values())
