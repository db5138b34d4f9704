"""Dropout (Srivastava et al. 2014) and stochastic depth (Huang et al. 2016), in training only."""

import torch
from torch import Tensor, nn

from ..kernels.dropout import dropout, kept_fraction_16bit
from ..kernels.keyed_random import MASK_LEVELS, random_mask, row_keys


class Dropout(nn.Dropout):
    """`document_ids_BL`: document ids of packed rows, for use outside blocks, which know their
    tokens' documents.
    """

    def forward(self, x: Tensor, document_ids_BL: Tensor | None = None) -> Tensor:
        if not self.training or not self.p:
            return x
        keys = None
        if document_ids_BL is not None:
            keys = row_keys(x.shape[0], x.shape[1], x.device, document_ids_BL)
        return dropout(x, self.p, keys)


class DropPath(nn.Module):
    """Drop a sample's whole update with probability `rate`; the others are scaled to keep the
    mean.
    """

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.rate = probability

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        kept = kept_fraction_16bit(self.rate)
        kept_B11 = random_mask(
            torch.Size((len(x), 1, 1)), kept, row_keys(len(x), 1, x.device), x.device
        )
        return x * (kept_B11.view(-1, *[1] * (x.dim() - 1)) * (MASK_LEVELS / kept)).to(x.dtype)
