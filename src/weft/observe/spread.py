"""Spread of hidden states across tokens: a collapsed model gives every token nearly the same
vector.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..nn.layers.sequence import HiddenStates
from ..nn.model import Model


class Spread(NamedTuple):
    """How far vectors differ.

    Attributes:
        effective_rank: the number of directions in which they differ, from 1 to their width. It is
            the exponential of the entropy of the principal components' variances (after Roy and
            Vetterli 2007, "The effective rank"); 0 if they are all equal.
        common_share: the share of their mean square that is their mean:
            0 if they are centred, 1 if they are all equal.
    """

    effective_rank: float
    common_share: float


def spread(states: Tensor) -> Spread:
    """Measure how far vectors differ.

    Args:
        states: of any shape (…, D), without padding.

    Raises:
        ValueError: if there are fewer than two vectors, or one holds NaN or infinity.
    """
    x_TD = states.detach().flatten(0, -2).double()
    if len(x_TD) < 2:
        raise ValueError(
            f"spread compares vectors, and states of shape {tuple(states.shape)} hold "
            f"{len(x_TD)}; give at least 2"
        )
    finite_T = x_TD.isfinite().all(1)
    if not finite_T.all():
        raise ValueError(
            f"{int((~finite_T).sum())} of {len(x_TD)} states hold NaN or infinity and have no "
            "spread; give a model whose weights are finite, such as an earlier checkpoint"
        )
    mean_D = x_TD.mean(0)
    variance_R = torch.linalg.svdvals(x_TD - mean_D).square()
    square = x_TD.square().sum(1).mean()
    # Rounding errors of equal vectors are not a direction.
    if variance_R.sum() <= len(x_TD) * square * 1e-12:
        return Spread(0.0, float(square > 0))
    share_R = variance_R / variance_R.sum()
    entropy = torch.special.entr(share_R).sum()
    return Spread(float(entropy.exp()), float(mean_D.square().sum() / square))


@contextmanager
def output_states(model: Model, limit: int = 2048) -> Iterator[list[Tensor]]:
    """Inside the block, forward passes fill the list with the first output vectors of the encoder,
    or of the decoder of a model without one; padding is excluded. Outputs are unchanged bit for
    bit.

    Args:
        model: of any family.
        limit: the number of vectors to keep.

    Yields:
        Tensors of shape (T, D), whose T add up to at most `limit`.
    """
    states: list[Tensor] = []

    def keep(module: nn.Module, inputs: tuple[Any, ...], sequence: HiddenStates) -> None:
        missing = limit - sum(map(len, states))
        if missing > 0:
            x_BLD = sequence.x_BLD
            mask_BL = sequence.attention_mask_BL
            x_TD = x_BLD.flatten(0, 1) if mask_BL is None else x_BLD[mask_BL]
            states.append(x_TD[:missing].detach().float().cpu())

    stack = model.encoder if model.encoder is not None else model.decoder
    assert stack is not None
    hook = stack.register_forward_hook(keep)
    try:
        yield states
    finally:
        hook.remove()
