"""Attention patterns with one fault each."""

import torch

import weft
from weft.testing import check_part


@weft.register
class OwnBlocks(weft.Pattern):
    """Tokens attend backwards within their block."""

    looks_ahead = False
    size: weft.spec.PositiveInt = 4
    fault: str = ""


@weft.implements(OwnBlocks)
class OwnBlocksMask(weft.PatternMask):
    backend = "own_blocks"

    def allowed(self, query_BL, key_BM):
        query_BL1 = query_BL[:, :, None]
        key_B1M = key_BM[:, None, :]
        same_BLM = query_BL1 // self.pattern.size == key_B1M // self.pattern.size
        return (
            same_BLM if self.pattern.fault == "looks ahead" else same_BLM & (key_B1M <= query_BL1)
        )


@weft.register(weft.PatternBackend, "own_blocks")
def own_blocks(mask, positions, biased):
    if biased or positions.first_query_slot != 0:
        return None
    at_L = torch.arange(positions.query_BL.shape[1])
    seen_LM = mask.allowed(at_L[None], at_L[None])[0]
    if mask.pattern.fault == "backend":
        seen_LM = torch.ones_like(seen_LM).tril()

    def split(kernel):
        return lambda q, k, v, _, **options: kernel(
            q, k, v, seen_LM.to(q.device)[None, None], **options | {"causal": False}
        )

    return split


def check(fault):
    check_part(OwnBlocks(fault=fault))
