"""Which prediction is for which labelled box, and how far it is off (DETR, arXiv:2005.12872, section 3.1; appendix A.2)."""

from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from .. import recipe as R
from ..kernels.cross_entropy import IGNORE_INDEX
from ..layers.boxes import generalized_iou

LARGEST = 1e30  # of a cost, in place of what is not a number: the loss tells the guard, not scipy


class Objects(NamedTuple):
    """The labelled boxes of a batch, padded to those of the fullest image."""

    label_BM: Tensor  # IGNORE_INDEX at padding
    box_BM4: Tensor  # centre x, y, width, height as fractions of the image

    @property
    def mask_BM(self) -> Tensor:
        return self.label_BM != IGNORE_INDEX


def class_scores(logits_V: Tensor) -> Tensor:
    """(…, classes): probabilities; what is left over is "no object"."""
    return logits_V.softmax(-1)[..., :-1]


@torch.no_grad()
def match(task: R.Detection, logits_YBNV: Tensor, boxes_YBN4: Tensor, objects: Objects) -> Tensor:
    """(Y, B, M): the query that is assigned to each labelled box, in each layer; N where there is none.

    The cost is worked out for all layers and images at once and leaves the device in one transfer."""
    from scipy.optimize import linear_sum_assignment

    Y, B, N, _ = logits_YBNV.shape
    label_BM, M = objects.label_BM.clamp(min=0), objects.label_BM.shape[1]
    scores_YBNV = class_scores(logits_YBNV)
    class_YBNM = -scores_YBNV.gather(-1, label_BM[None, :, None, :].expand(Y, B, N, M))
    guess, truth = boxes_YBN4[:, :, :, None], objects.box_BM4[None, :, None]
    cost_YBNM = (
        task.class_weight * class_YBNM
        + task.l1_weight * (guess - truth).abs().sum(-1)
        - task.giou_weight * generalized_iou(guess, truth)
    )
    cost = cost_YBNM.nan_to_num(LARGEST, LARGEST, LARGEST).cpu().numpy()
    counts = objects.mask_BM.sum(1).cpu().numpy()
    match_YBM = np.full((Y, B, M), N)
    for y, b in np.ndindex(Y, B):
        query, box = linear_sum_assignment(cost[y, b, :, : counts[b]])
        match_YBM[y, b, box] = query
    return torch.from_numpy(match_YBM).to(logits_YBNV.device)


def class_sum(
    logits_BNV: Tensor, match_BM: Tensor, objects: Objects, no_object_weight: float
) -> Tensor:
    """Cross entropy of every query of (…, B) with its box's class, or with the last class: no object, which weighs less."""
    *lead, N, V = logits_BNV.shape
    target = match_BM.new_full((*lead, N + 1), V - 1)  # the last slot takes what is not matched
    target.scatter_(-1, match_BM, objects.label_BM.expand_as(match_BM))
    target = target[..., :N].flatten()
    weight_V = logits_BNV.new_ones(V)
    weight_V[-1] = no_object_weight
    return F.cross_entropy(logits_BNV.reshape(-1, V), target, weight_V, reduction="sum")


def box_sums(boxes_BN4: Tensor, match_BM: Tensor, objects: Objects) -> tuple[Tensor, Tensor]:
    """L1 distance and 1 - GIoU of each labelled box of (…, B) and the prediction that is matched with it."""
    N = boxes_BN4.shape[-2]
    is_matched = match_BM < N
    at = match_BM.clamp(max=N - 1)[..., None].expand(*match_BM.shape, 4)
    guess, truth = boxes_BN4.gather(-2, at), objects.box_BM4.expand(*match_BM.shape, 4)
    guess, truth = guess[is_matched], truth[is_matched]
    return (guess - truth).abs().sum(), (1 - generalized_iou(guess, truth)).sum()
