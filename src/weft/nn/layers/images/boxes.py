"""Box utilities: formats and generalised IoU."""

import torch
from torch import Tensor


def to_corners(box_4: Tensor) -> Tensor:
    """(…, 4) centre x, y, width, height -> left, top, right, bottom."""
    centre = box_4[..., :2]
    size = box_4[..., 2:]
    return torch.cat((centre - size / 2, centre + size / 2), -1)


def generalized_iou(a_4: Tensor, b_4: Tensor) -> Tensor:
    """Return generalised IoU, IoU - (hull - union) / hull, of boxes as centre and size, broadcast
    (Rezatofighi et al. 2019, arXiv:1902.09630, algorithm 1).

    A small number avoids 0 / 0 for boxes without area.
    """
    a = to_corners(a_4)
    b = to_corners(b_4)
    inner = (torch.minimum(a[..., 2:], b[..., 2:]) - torch.maximum(a[..., :2], b[..., :2])).clamp(
        min=0
    )
    outer = torch.maximum(a[..., 2:], b[..., 2:]) - torch.minimum(a[..., :2], b[..., :2])
    overlap, hull = (side[..., 0] * side[..., 1] for side in (inner, outer))
    union = a_4[..., 2] * a_4[..., 3] + b_4[..., 2] * b_4[..., 3] - overlap
    tiny = torch.finfo(union.dtype).tiny
    return overlap / union.clamp(min=tiny) - (hull - union) / hull.clamp(min=tiny)
