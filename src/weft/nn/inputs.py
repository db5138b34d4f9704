"""Checks of model inputs. They use only types and shapes, so that nothing waits for a device."""

from typing import Any

import torch
from torch import Tensor

from .. import spec as S

IDS = (torch.int64, torch.int32)


def shape_of(tensor: Tensor) -> str:
    return f"({', '.join(map(str, tensor.shape))})"


def check_ids(name: str, ids: Any) -> None:
    """Raise ValueError unless `ids` is a tensor (B, L) of whole numbers."""
    if not isinstance(ids, Tensor):
        raise ValueError(
            f"{name} must be a tensor, not {type(ids).__name__}; give ids as torch.tensor([[1, "
            "2, 3]])"
        )
    if ids.dtype not in IDS:
        raise ValueError(f"{name} must be whole numbers, not {ids.dtype}; give torch.long")
    if ids.dim() != 2:
        raise ValueError(
            f"{name} must have the shape (rows, tokens), not {shape_of(ids)}; give (1, tokens) for "
            "one row"
        )


def check_images(images: Any, source: S.Patches | S.ResNet) -> None:
    """Raise ValueError unless `images` is a tensor (B, C, rows, columns) with the model's
    channels.
    """
    if not isinstance(images, Tensor) or images.dim() != 4 or images.shape[1] != source.channels:
        what = f"shape {shape_of(images)}" if isinstance(images, Tensor) else type(images).__name__
        raise ValueError(
            f"this model reads images (images, {source.channels} channels, rows, columns), not "
            f"{what}"
        )
    if not images.is_floating_point():
        raise ValueError(
            f"images must be normalised floating point numbers, not {images.dtype}; divide pixels "
            "by 255 and normalise them"
        )


def check_beside(name: str, tensor: Tensor | None, ids_BL: Tensor) -> None:
    """Raise ValueError for a mask, document ids or token types whose shape differs from that of the
    ids.
    """
    if tensor is None:
        return
    if not isinstance(tensor, Tensor) or tensor.shape != ids_BL.shape:
        is_tensor = isinstance(tensor, Tensor)
        what = f"shape {shape_of(tensor)}" if is_tensor else f"type {type(tensor).__name__}"
        raise ValueError(
            f"{name} has the {what}, but ids have the shape {shape_of(ids_BL)}; give a tensor of "
            "the same shape"
        )
    if name != "attention_mask" and tensor.dtype not in IDS:
        raise ValueError(f"{name} must be whole numbers, not {tensor.dtype}; give torch.long")


def lookup_error(name: str, ids: Tensor | None, size: int) -> ValueError | None:
    """Return the error for a failed lookup in a table of `size` rows; None if the table has all
    ids.
    """
    if ids is None or not ids.numel():
        return None
    wrong = ids[(ids < 0) | (ids >= size)]
    if not wrong.numel():
        return None
    return ValueError(f"{name} contain {wrong[0].item()}; give ids from 0 to {size - 1}")
