"""Activation functions by name."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from ..kernels.gelu import gelu_tanh
from ..kernels.precision import is_eager_cpu

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "silu": F.silu,
    "tanh": Tensor.tanh,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: (
        gelu_tanh(x)
        if is_eager_cpu(x) and x.dtype == torch.bfloat16
        else F.gelu(x, approximate="tanh")
    ),
    "quick_gelu": lambda x: x * (1.702 * x).sigmoid(),
}
