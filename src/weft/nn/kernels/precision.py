"""Mixed precision: one cast in place of several by autocast, and when explicit kernels are
faster.
"""

import torch
from torch import Tensor


def cast_for_autocast(x: Tensor) -> Tensor:
    """Cast an x that several maps read once; autocast would cast it and its gradient for each
    map.
    """
    kind = x.device.type
    if x.dtype != torch.float32 or kind == "meta" or not torch.is_autocast_enabled(kind):
        return x
    return x.to(torch.get_autocast_dtype(kind))


def is_eager_cpu(x: Tensor) -> bool:
    """Return whether explicit kernels are faster. On other devices PyTorch's kernels are fast;
    compilation and sharded or meta tensors need them too.
    """
    return x.device.type == "cpu" and type(x) is Tensor and not torch.compiler.is_compiling()
