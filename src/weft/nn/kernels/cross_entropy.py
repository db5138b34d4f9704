"""Cross entropy as a sum over labels, with the gradient in the dtype of the logits."""

from collections.abc import Callable, Iterator
from functools import singledispatch
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

IGNORE_INDEX = -100


@singledispatch
def cross_entropy(logits_TV: Tensor, label_T: Tensor, smoothing: float = 0.0) -> Tensor:
    """Return the sum of the cross entropy over labels other than IGNORE. Label smoothing spreads
    that fraction of each label evenly over all V (Szegedy et al. 2016, arXiv:1512.00567, section
    7). Logits beyond the labels are ignored.

    Other tensor types, such as logits sharded over ranks, register their own function.
    """
    loss: Tensor = CrossEntropy.apply(logits_TV, pad_labels(logits_TV, label_T), smoothing)
    return loss


def pad_labels(logits_TV: Tensor, label_T: Tensor) -> Tensor:
    """Return one label per row of logits; rows beyond the labels are ignored."""
    beyond = len(logits_TV) - len(label_T)
    # a negative pad would remove labels
    assert beyond >= 0, f"{len(label_T)} labels for {len(logits_TV)} rows of logits"
    return F.pad(label_T, (0, beyond), value=IGNORE_INDEX)


class CrossEntropy(torch.autograd.Function):
    """log Σ exp(x) - (1 - s) x_label - s mean(x), a few rows at a time, so that float32 copies
    exist only for those rows.
    """

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


class VocabularyPart(NamedTuple):
    """The local columns of the logits and the reduction of row statistics over ranks."""

    first: int
    vocab_size: int
    reduce_max: Callable[[Tensor], Tensor]
    reduce_sum: Callable[[Tensor], Tensor]


class SharedCrossEntropy(torch.autograd.Function):
    """The same for logits with columns sharded over ranks: three values per row are reduced, never
    the logits (Shoeybi et al. 2019, arXiv:1909.08053, section 3).
    """

    @staticmethod
    def forward(
        context: Any, logits_TV: Tensor, label_T: Tensor, smoothing: float, part: VocabularyPart
    ) -> Tensor:
        at_T = label_T - part.first
        here_T = (at_T >= 0) & (at_T < logits_TV.shape[1]) & (label_T != IGNORE_INDEX)
        at_T = at_T.clamp(0, max(logits_TV.shape[1] - 1, 0))
        dtype = accumulation_dtype(logits_TV)
        most_T = part.reduce_max(logits_TV.amax(1).to(dtype))
        sums_3T = torch.zeros(3, len(label_T), dtype=dtype, device=logits_TV.device)
        for rows, x_TV in row_chunks(logits_TV):
            sums_3T[1, rows] = x_TV.gather(1, at_T[rows, None])[:, 0]
            sums_3T[2, rows] = x_TV.sum(-1)
            sums_3T[0, rows] = x_TV.sub_(most_T[rows, None]).exp_().sum(1)
        sums_3T[1].masked_fill_(~here_T, 0.0)
        exp_T, label_logit_T, sum_T = part.reduce_sum(sums_3T)
        log_sum_T = exp_T.log() + most_T
        each_T = log_sum_T + (smoothing - 1) * label_logit_T
        if smoothing:
            each_T -= smoothing / part.vocab_size * sum_T
        context.save_for_backward(logits_TV, label_T, at_T, here_T, log_sum_T)
        context.smoothing = smoothing
        context.vocab_size = part.vocab_size
        loss: Tensor = each_T.masked_fill(label_T == IGNORE_INDEX, 0.0).sum()
        return loss

    @staticmethod
    @once_differentiable
    def backward(context: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        logits_TV, label_T, at_T, here_T, log_sum_T = context.saved_tensors
        grad_TV = torch.empty_like(logits_TV)
        for rows, x_TV in row_chunks(logits_TV):
            scale_T1 = grad.expand(len(label_T[rows])).masked_fill(
                label_T[rows] == IGNORE_INDEX, 0.0
            )[:, None]
            p_TV = x_TV.sub_(log_sum_T[rows, None]).exp_().mul_(scale_T1)
            if context.smoothing:
                p_TV -= scale_T1 * (context.smoothing / context.vocab_size)
            grad_TV[rows] = p_TV.scatter_add_(
                1, at_T[rows, None], scale_T1 * here_T[rows, None] * (context.smoothing - 1)
            )
        return grad_TV, None, None, None


def accumulation_dtype(x: Tensor) -> torch.dtype:
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def row_chunks(x_TV: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Yield a few rows at a time in float32, in one buffer that fits in the CPU cache; a GPU takes
    more rows.
    """
    T, V = x_TV.shape
    chunk_rows = min(max(1, (1 << (18 if x_TV.device.type == "cpu" else 26)) // V), T)
    room_TV = torch.empty(chunk_rows, V, dtype=accumulation_dtype(x_TV), device=x_TV.device)
    for i in range(0, T, max(chunk_rows, 1)):
        rows = slice(i, min(i + chunk_rows, T))
        yield rows, room_TV[: rows.stop - i].copy_(x_TV[rows])
