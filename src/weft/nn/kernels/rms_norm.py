"""RMSNorm with an explicit backward."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class RMSNormFunction(torch.autograd.Function):
    """unit · w, unit = x / √(mean(x²) + eps) (Zhang and Sennrich 2019, arXiv:1910.07467, section
    4), with an explicit backward.
    """

    @staticmethod
    def forward(context: Any, x: Tensor, weight_D: Tensor, eps: float) -> Tensor:
        rate = (
            torch.linalg.vector_norm(x, dim=-1, keepdim=True)
            .square_()
            .div_(len(weight_D))
            .add_(eps)
            .rsqrt_()
        )
        context.save_for_backward(x, weight_D, rate)
        y: Tensor = (x * rate).mul_(weight_D)
        return y

    @staticmethod
    @once_differentiable
    def backward(context: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        x, weight_D, rate = context.saved_tensors
        unit = x * rate
        dx = grad * weight_D
        dx.addcmul_(unit, (dx * unit).mean(-1, keepdim=True), value=-1).mul_(rate)
        return dx, (grad * unit).reshape(-1, len(weight_D)).sum(0), None
