"""Norms and the scalar functions between maps."""
from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from .. import spec as S

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu, "swish": F.silu, "tanh": Tensor.tanh, "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "gelu_sigmoid": lambda x: x * (1.702 * x).sigmoid(),
}


def build_norm(s: S.Norm | None, width: int) -> nn.Module:
    if s is None:
        return nn.Identity()
    if isinstance(s, S.RMSNorm):
        return nn.RMSNorm(width, eps=s.eps)
    return nn.LayerNorm(width, eps=s.eps, bias=s.bias)
