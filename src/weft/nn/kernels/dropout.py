"""Dropout keyed by sample: the dropped values depend on the sample and the position in it."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .keyed_random import MASK_LEVELS, Keys, random_attention_mask, random_mask


def dropout(x: Tensor, probability: float, keys: Keys | None = None) -> Tensor:
    """Set each value to 0 with probability `rate` and scale the others to keep the mean. The choice
    depends on the sample and the position in it (`keyed_random`); PyTorch's dropout also draws one
    number at a time on a CPU, a third of a training step.
    """
    if type(x) is not Tensor:
        return F.dropout(x, probability)  # a sharded or an imagined tensor
    kept_levels = kept_fraction_16bit(probability)
    return scale_by_mask(
        x, random_mask(x.shape, kept_levels, keys, x.device), MASK_LEVELS / kept_levels
    )


def attention_dropout(weight_BHLM: Tensor, probability: float) -> Tensor:
    """Dropout of attention weights."""
    if type(weight_BHLM) is not Tensor:
        return F.dropout(weight_BHLM, probability)
    kept = kept_fraction_16bit(probability)
    return scale_by_mask(
        weight_BHLM,
        random_attention_mask(weight_BHLM.shape, kept, weight_BHLM.device),
        MASK_LEVELS / kept,
    )


def kept_fraction_16bit(probability: float) -> int:
    """Return how many of the 65536 random values keep a value: at least one, never all."""
    return min(max(round((1 - probability) * MASK_LEVELS), 1), MASK_LEVELS - 1)


def apply_mask(x: Tensor, kept: Tensor) -> Tensor:
    """x · kept; for 16-bit numbers their bits times 0 or 1, without a conversion."""
    return (x.view(torch.int16) * kept).view(x.dtype) if x.dtype.itemsize == 2 else x * kept


def scale_by_mask(x: Tensor, kept: Tensor, scale: float) -> Tensor:
    """x · kept · scale."""
    if torch.compiler.is_compiling():
        return x * (kept * scale).to(x.dtype)
    y: Tensor = MaskedScale.apply(x, kept, scale)
    return y


class MaskedScale(torch.autograd.Function):
    """x · kept · scale, whose gradient is the same function."""

    @staticmethod
    def forward(context: Any, x: Tensor, kept: Tensor, scale: float) -> Tensor:
        context.save_for_backward(kept)
        context.scale = scale
        return apply_mask(x, kept).mul_(scale)

    @staticmethod
    def backward(context: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return MaskedScale.apply(grad, *context.saved_tensors, context.scale), None, None
