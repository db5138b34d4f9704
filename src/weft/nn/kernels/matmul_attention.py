"""Attention as matrix products with an explicit backward, several times as fast as PyTorch's where
that is slow.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .dropout import apply_mask, kept_fraction_16bit
from .keyed_random import MASK_LEVELS, random_attention_mask
from .precision import is_eager_cpu


def matmul_attention(
    q_BHLK: Tensor,
    k_BGMK: Tensor,
    v_BGMK: Tensor,
    mask: Tensor | None,
    *,
    causal: bool,
    scale: float | None,
    dropout: float,
) -> Tensor:
    """softmax(q kᵀ · scale + mask) v; heads of a group share keys without a copy."""
    shape_BHLM = torch.Size((*q_BHLK.shape[:3], k_BGMK.shape[2]))
    least = torch.finfo(q_BHLK.dtype).min
    kept_levels = kept_fraction_16bit(dropout)
    bias = seen = None
    if causal:
        bias = q_BHLK.new_full(shape_BHLM[2:], least).triu_(1)
    elif mask is not None and mask.dtype == torch.bool:
        bias = torch.zeros_like(mask, dtype=q_BHLK.dtype).masked_fill_(~mask, least)
        seen = mask.any(-1, keepdim=True)
    elif mask is not None:
        bias = mask.clamp(min=least)
        seen = (mask > least).any(-1, keepdim=True)
    if seen is not None and is_eager_cpu(seen) and seen.all():
        seen = None
    y_BHLK: Tensor = MatmulAttention.apply(
        q_BHLK,
        k_BGMK,
        v_BGMK,
        bias,
        q_BHLK.shape[-1] ** -0.5 if scale is None else scale,
        random_attention_mask(shape_BHLM, kept_levels) if dropout else None,
        MASK_LEVELS / kept_levels if dropout else 1.0,
    )
    return y_BHLK if seen is None else y_BHLK * seen.to(y_BHLK.dtype)


class MatmulAttention(torch.autograd.Function):
    """The backward needs the weights before and after dropout; a weight of 0 after it was
    dropped.
    """

    @staticmethod
    def forward(
        context: Any,
        q_BHLK: Tensor,
        k_BGMK: Tensor,
        v_BGMK: Tensor,
        bias: Tensor | None,
        scale: float,
        kept_BHLM: Tensor | None,
        grow: float,
    ) -> Tensor:
        (B, H, L, _) = q_BHLK.shape
        (G, M) = k_BGMK.shape[1:3]
        rows = (B * G, H // G * L, M)  # one matrix a group, its heads one under another
        with torch.autocast(q_BHLK.device.type, enabled=False):
            q = q_BHLK.reshape(*rows[:2], q_BHLK.shape[-1])
            k = k_BGMK.flatten(0, 1)
            v = v_BGMK.flatten(0, 1)
            weight_BHLM = q.new_empty(B, H, L, M)
            if bias is not None:
                weight_BHLM.copy_(bias)
            weight = weight_BHLM.view(rows).baddbmm_(
                q, k.mT, beta=int(bias is not None), alpha=scale
            )
            torch.ops.aten._softmax.out(weight, -1, False, out=weight)
            dropped_weight = (
                weight if kept_BHLM is None else apply_mask(weight, kept_BHLM.view(rows))
            )
            y = torch.bmm(dropped_weight, v)
            if grow != 1:
                y.mul_(grow)
        context.save_for_backward(q, k, v, weight, dropped_weight)
        context.scale = scale
        context.grow = grow
        context.shape = (B, H, L, M, G)
        context.bias = bias.shape if bias is not None and context.needs_input_grad[3] else None
        return y.view(B, H, L, v.shape[-1])

    @staticmethod
    @once_differentiable
    def backward(context: Any, grad_BHLK: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, weight, dropped_weight = context.saved_tensors
        B, H, L, M, G = context.shape
        with torch.autocast(q.device.type, enabled=False):
            grad = grad_BHLK.reshape(*q.shape[:2], v.shape[-1])
            if context.grow != 1:
                grad = grad * context.grow
            dv = torch.bmm(dropped_weight.mT, grad)
            ds = torch.bmm(grad, v.mT)
            if context.grow != 1:
                torch.ops.aten.threshold_backward.grad_input(ds, dropped_weight, 0, grad_input=ds)
            torch.ops.aten._softmax_backward_data.out(ds, weight, -1, ds.dtype, grad_input=ds)
            dq = torch.bmm(ds, k).mul_(context.scale)
            dk = torch.bmm(ds.mT, q).mul_(context.scale)
            dbias = None if context.bias is None else ds.view(B, H, L, M).sum_to_size(context.bias)
        return (
            dq.view(B, H, L, q.shape[-1]),
            dk.view(B, G, *k.shape[1:]),
            dv.view(B, G, *v.shape[1:]),
            dbias,
            None,
            None,
            None,
        )
