"""The PyTorch implementation of a `Spec`: models, stacks, blocks, layers and kernels."""

from .model import Model, build

__all__ = ["Model", "build"]
