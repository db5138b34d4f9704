"""A pattern of one's own with its own backend: every `dilation`-th of the keys before (Beltagy et
al. 2020, arXiv:2004.05150, section 3.1).

weft train RECIPE --code examples/extend/dilated_window.py \
    --set 'model.decoder.blocks.*.attention.inner.pattern={"kind": "DilatedWindow", "keys": 8, \
    "dilation": 4}'
"""

from typing import Any

import torch
from torch import Tensor

import weft


@weft.register
class DilatedWindow(weft.Pattern):
    """A query at i attends to i, i - dilation, i - 2 · dilation …, `keys` of them."""

    keys: weft.spec.PositiveInt
    dilation: weft.spec.PositiveInt
    looks_ahead = False


@weft.implements(DilatedWindow)
class DilatedMask(weft.PatternMask):
    backend = "dilated"

    def allowed(self, query_BL: Tensor, key_BM: Tensor) -> Tensor:
        back_BLM = query_BL[:, :, None] - key_BM[:, None, :]
        keys = self.pattern.keys
        step = self.pattern.dilation
        return (back_BLM >= 0) & (back_BLM < keys * step) & (back_BLM % step == 0)


@weft.register(weft.PatternBackend, "dilated")
def dilated_backend(mask: DilatedMask, positions: weft.Positions, biased: bool) -> Any:
    """Tokens of one remainder modulo the dilation attend among themselves: (L / dilation)² scores
    each instead of L².
    """
    (_, L) = positions.query_BL.shape
    step = mask.pattern.dilation
    aligned = positions.first_query_slot == 0 and positions.key_BM.shape[1] == L
    if biased or not aligned or positions.attention_mask_BM is not None or L % step:
        return None  # then the whole mask is used
    at = torch.arange(0, L, step, device=positions.query_BL.device)[None]
    near = mask.allowed(at, at)[:, None]

    def by_remainder(t: Tensor) -> Tensor:  # (B, H, L, K) -> (B · step, H, L / step, K)
        return t.unflatten(2, (-1, step)).permute(0, 3, 1, 2, 4).flatten(0, 1)

    def split(kernel: Any) -> Any:
        def attend(q: Tensor, k: Tensor, v: Tensor, _: None, **options: Any) -> Tensor:
            if options["dropout"]:  # its random numbers belong to the tokens in their order
                every = mask.allowed(positions.query_BL, positions.key_BM)[:, None]
                return kernel(q, k, v, every, **options)
            y = kernel(*map(by_remainder, (q, k, v)), near, **options)
            return y.unflatten(0, (-1, step)).permute(0, 2, 3, 1, 4).flatten(2, 3)

        return attend

    return split
