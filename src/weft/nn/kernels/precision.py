"""Mixed precision: what autocast would do several times, done once. And where steps written by hand
pay.
"""

import torch
from torch import Tensor


def cast_for_autocast(x: Tensor) -> Tensor:
    """Cast an x that several maps read once; autocast would cast it, and its gradient back, for
    each of them.
    """
    kind = x.device.type
    if x.dtype != torch.float32 or kind == "meta" or not torch.is_autocast_enabled(kind):
        return x
    return x.to(torch.get_autocast_dtype(kind))


def is_eager_cpu(x: Tensor) -> bool:
    """Elsewhere torch's own kernels are quick; a compiler, a sharded or an imagined tensor needs
    them too.
    """
    return x.device.type == "cpu" and type(x) is Tensor and not torch.compiler.is_compiling()
