"""What a model reads, checked before it is read: types and shapes alone, so that nothing waits for
a device.
"""

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
            f"{name} of the type {type(ids).__name__} are no tensor; give ids as torch.tensor([[1, "
            "2, 3]])"
        )
    if ids.dtype not in IDS:
        raise ValueError(f"{name} of {ids.dtype} are no ids; give whole numbers, torch.long")
    if ids.dim() != 2:
        raise ValueError(
            f"{name} of the shape {shape_of(ids)} are no rows of ids; give (rows, tokens), for one "
            "row (1, tokens)"
        )


def check_images(images: Any, source: S.Patches | S.ResNet) -> None:
    """Raise ValueError unless `images` is a tensor (B, C, rows, columns) with the channels that the
    model reads.
    """
    if not isinstance(images, Tensor) or images.dim() != 4 or images.shape[1] != source.channels:
        what = f"shape {shape_of(images)}" if isinstance(images, Tensor) else type(images).__name__
        raise ValueError(
            f"this model reads images (images, {source.channels} channels, rows, columns), not "
            f"{what}"
        )
    if not images.is_floating_point():
        raise ValueError(
            f"images of {images.dtype} are not normalised; give floating point numbers"
        )


def check_beside(name: str, tensor: Tensor | None, ids_BL: Tensor) -> None:
    """Raise ValueError for a mask, or ids of documents or segments, that have another shape than
    the ids that they describe.
    """
    if tensor is None:
        return
    if not isinstance(tensor, Tensor) or tensor.shape != ids_BL.shape:
        shape = shape_of(tensor) if isinstance(tensor, Tensor) else type(tensor).__name__
        raise ValueError(
            f"{name} is {shape}, beside ids of {shape_of(ids_BL)}; give the same shape"
        )
    if name != "attention_mask" and tensor.dtype not in IDS:
        raise ValueError(f"{name} of {tensor.dtype} are no ids; give whole numbers, torch.long")


def lookup_error(name: str, ids: Tensor | None, size: int) -> ValueError | None:
    """Return the error for a lookup that failed in a table of `size` rows, or None if it has all
    these ids.
    """
    if ids is None or not ids.numel():
        return None
    wrong = ids[(ids < 0) | (ids >= size)]
    if not wrong.numel():
        return None
    return ValueError(f"{name} hold {wrong[0].item()}, which is no id; they are 0 to {size - 1}")
