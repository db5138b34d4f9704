"""One block, stacked: the model a spec describes."""

from .model import Model, build

__all__ = ["Model", "build"]
