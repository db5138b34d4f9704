"""Cross entropy as a sum over labels, the gradient in the logits' own kind of number."""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

IGNORE_INDEX = -100


def cross_entropy(logits_TV: Tensor, label_T: Tensor, smoothing: float = 0.0) -> Tensor:
    """The sum over labels other than IGNORE of the cross entropy; smoothed, with that share of each label spread evenly over
    all V (Szegedy et al. 2016, arXiv:1512.00567, section 7). Logits beyond the labels count for nothing."""
    beyond = len(logits_TV) - len(label_T)
    assert beyond >= 0, (
        f"{len(label_T)} labels for {len(logits_TV)} rows of logits"
    )  # a negative pad would cut labels off
    label_T = F.pad(label_T, (0, beyond), value=IGNORE_INDEX)
    loss: Tensor = CrossEntropy.apply(logits_TV, label_T, smoothing)
    return loss


class CrossEntropy(torch.autograd.Function):
    """log Σ exp(x) - (1 - s) x_label - s mean(x), a few rows at a time: wide numbers exist for those rows alone, in one place."""

    @staticmethod
    def forward(context: Any, logits_TV: Tensor, label_T: Tensor, smoothing: float) -> Tensor:
        log_sum_T = torch.empty(
            len(label_T), dtype=accumulation_dtype(logits_TV), device=logits_TV.device
        )
        loss = log_sum_T.new_zeros(())
        for rows, x_TV in row_chunks(logits_TV):
            label_T1 = label_T[rows, None]
            each_T = (smoothing - 1) * x_TV.gather(1, label_T1.clamp(min=0))[:, 0]
            if smoothing:
                each_T -= smoothing * x_TV.mean(-1)
            most_T1 = x_TV.amax(1, keepdim=True)
            log_sum_T[rows] = x_TV.sub_(most_T1).exp_().sum(1).log_() + most_T1[:, 0]
            loss += (
                (each_T + log_sum_T[rows]).masked_fill_(label_T1[:, 0] == IGNORE_INDEX, 0.0).sum()
            )
        context.save_for_backward(logits_TV, label_T, log_sum_T)
        context.smoothing = smoothing
        return loss

    @staticmethod
    @once_differentiable
    def backward(context: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        logits_TV, label_T, log_sum_T = context.saved_tensors
        grad_TV = torch.empty_like(logits_TV)
        for rows, x_TV in row_chunks(logits_TV):
            label_T1 = label_T[rows, None]
            scale_T1 = grad.expand(label_T1.shape).masked_fill(label_T1 == IGNORE_INDEX, 0.0)
            p_TV = x_TV.sub_(log_sum_T[rows, None]).exp_().mul_(scale_T1)
            if context.smoothing:
                p_TV -= scale_T1 * (context.smoothing / p_TV.shape[1])
            grad_TV[rows] = p_TV.scatter_add_(
                1, label_T1.clamp(min=0), scale_T1 * (context.smoothing - 1)
            )
        return grad_TV, None, None


def accumulation_dtype(x: Tensor) -> torch.dtype:
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def row_chunks(x_TV: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """A few rows after another, widened in the same room: it stays in a processor's cache; a graphics card takes more at a time."""
    T, V = x_TV.shape
    many = min(max(1, (1 << (18 if x_TV.device.type == "cpu" else 26)) // V), T)
    room_TV = torch.empty(many, V, dtype=accumulation_dtype(x_TV), device=x_TV.device)
    for i in range(0, T, max(many, 1)):
        rows = slice(i, min(i + many, T))
        yield rows, room_TV[: rows.stop - i].copy_(x_TV[rows])
