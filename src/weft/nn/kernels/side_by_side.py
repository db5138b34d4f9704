"""Several linear maps of the same vectors as one matrix product."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .precision import is_eager_cpu


def one_product_is_quicker(x: Tensor) -> bool:
    """Return whether one product is faster: in bf16 training on a CPU, since each product reads x
    and adds to its gradient. In float32 the products dominate.
    """
    return x.dtype == torch.bfloat16 and x.requires_grad and is_eager_cpu(x)


def linear_side_by_side(x: Tensor, maps: Sequence[nn.Linear]) -> tuple[Tensor, ...]:
    """Each of the maps of x, as views of one product."""
    weight = torch.cat([m.weight.to(x.dtype) for m in maps])
    biases = [m.bias.to(x.dtype) for m in maps if m.bias is not None]
    bias = torch.cat(biases) if biases else None
    parts: tuple[Tensor, ...] = F.linear(x, weight, bias).split([m.out_features for m in maps], -1)
    return parts
