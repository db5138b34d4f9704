"""Matching of predictions with labelled boxes, and the losses of matched pairs (DETR,
arXiv:2005.12872, section 3.1; appendix A.2).
"""

from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from .. import recipe as R
from ..nn.kernels.cross_entropy import IGNORE_INDEX
from ..nn.layers.images.boxes import generalized_iou

LARGEST = 1e30  # replaces a NaN cost: the loss guard reports the NaN, not scipy
# focal loss: the weight of positive classes; 1 - ALPHA for negative ones (arXiv:1708.02002, section
# 4)
ALPHA = 0.25


class Objects(NamedTuple):
    """The labelled boxes of a batch, padded to the image with most boxes."""

    label_BM: Tensor  # IGNORE_INDEX at padding
    box_BM4: Tensor  # centre x, y, width, height as fractions of the image

    @property
    def mask_BM(self) -> Tensor:
        return self.label_BM != IGNORE_INDEX


class Scores:
    """Classes that exclude each other, the last one "no object" (DETR, section 3.1)."""

    def __init__(self, task: R.Detection) -> None:
        self.no_object_weight = task.no_object_weight

    def probabilities(self, logits_V: Tensor) -> Tensor:
        """(…, classes)."""
        return logits_V.softmax(-1)[..., :-1]

    def costs(self, logits_V: Tensor) -> Tensor:
        """Return the matching cost of each class, (…, classes)."""
        return -self.probabilities(logits_V)

    def sum(self, logits_V: Tensor, label: Tensor) -> Tensor:
        """Return the cross entropy with labels (…); -1 is "no object", with a lower weight, and
        IGNORE_INDEX is ignored.
        """
        V = logits_V.shape[-1]
        weight_V = logits_V.new_ones(V)
        weight_V[-1] = self.no_object_weight
        label = label.masked_fill(label == -1, V - 1).flatten()
        return F.cross_entropy(logits_V.reshape(-1, V), label, weight_V, reduction="sum")

    def count(self, counts_B: Any, queries: int) -> float:
        """Return the divisor of the sum over the queries of images with these numbers of boxes."""
        matched = int(counts_B.clip(max=queries).sum())
        return matched + self.no_object_weight * (len(counts_B) * queries - matched)


class FocalScores(Scores):
    """Independent classes with focal loss, which down-weights easy examples (Lin et al. 2017,
    arXiv:1708.02002, section 3).
    """

    def probabilities(self, logits_V: Tensor) -> Tensor:
        return logits_V.sigmoid()

    def costs(self, logits_V: Tensor) -> Tensor:
        chance_V = logits_V.sigmoid()
        present = ALPHA * (1 - chance_V) ** 2 * -F.logsigmoid(logits_V)
        absent = (1 - ALPHA) * chance_V**2 * -F.logsigmoid(-logits_V)
        return present - absent

    def sum(self, logits_V: Tensor, label: Tensor) -> Tensor:
        is_class_V = label[..., None] == torch.arange(logits_V.shape[-1], device=label.device)
        chance_V = logits_V.sigmoid()
        present = ALPHA * (1 - chance_V) ** 2 * -F.logsigmoid(logits_V)
        absent = (1 - ALPHA) * chance_V**2 * -F.logsigmoid(-logits_V)
        each_V = torch.where(is_class_V, present, absent)
        return each_V.masked_fill((label == IGNORE_INDEX)[..., None], 0).sum()

    def count(self, counts_B: Any, queries: int) -> float:
        return float(counts_B.sum())


@torch.no_grad()
def match(
    task: R.Detection,
    scores: Scores,
    logits_YBNV: Tensor,
    boxes_YBN4: Tensor,
    objects: Objects,
) -> Tensor:
    """(Y, B, M): the query that is assigned to each labelled box, in each layer; N where there is
    none. The cost is computed for all layers and images at once and copied from the device in one
    transfer.
    """
    from scipy.optimize import linear_sum_assignment

    Y, B, N, _ = logits_YBNV.shape
    label_BM = objects.label_BM.clamp(min=0)
    M = objects.label_BM.shape[1]
    at_YBNM = label_BM[None, :, None, :].expand(Y, B, N, M)
    class_YBNM = scores.costs(logits_YBNV).gather(-1, at_YBNM)
    guess = boxes_YBN4[:, :, :, None]
    truth = objects.box_BM4[None, :, None]
    class_cost = task.class_weight if task.class_cost is None else task.class_cost
    cost_YBNM = (
        class_cost * class_YBNM
        + task.l1_weight * (guess - truth).abs().sum(-1)
        - task.giou_weight * generalized_iou(guess, truth)
    )
    packed = torch.cat((cost_YBNM.flatten(), objects.mask_BM.flatten().to(cost_YBNM.dtype)))
    plain = packed.nan_to_num(LARGEST, LARGEST, LARGEST).cpu().numpy()
    cost = plain[: Y * B * N * M].reshape(Y, B, N, M)
    mask_BM = plain[Y * B * N * M :]
    counts = mask_BM.reshape(B, M).sum(1).astype(int)
    match_YBM = np.full((Y, B, M), N)
    for y, b in np.ndindex(Y, B):
        query, box = linear_sum_assignment(cost[y, b, :, : counts[b]])
        match_YBM[y, b, box] = query
    return torch.from_numpy(match_YBM).to(logits_YBNV.device)


def matched_labels(match_BM: Tensor, objects: Objects, queries: int) -> Tensor:
    """Return the class of the box matched with each query, (…, B, N); -1 for no object."""
    label = match_BM.new_full((*match_BM.shape[:-1], queries + 1), -1)
    label.scatter_(-1, match_BM, objects.label_BM.expand_as(match_BM))
    return label[..., :queries]  # the last slot receives unmatched boxes


def matched_boxes(
    boxes_BN4: Tensor, match_BM: Tensor, objects: Objects
) -> tuple[Tensor, Tensor, Tensor]:
    """Return predictions and their matched labelled boxes, both (…, B, M, 4), and which pairs are
    valid.
    """
    N = boxes_BN4.shape[-2]
    at = match_BM.clamp(max=N - 1)[..., None].expand(*match_BM.shape, 4)
    return boxes_BN4.gather(-2, at), objects.box_BM4.expand(*match_BM.shape, 4), match_BM < N


def box_sums(guess_4: Tensor, truth_4: Tensor, is_pair: Tensor) -> tuple[Tensor, Tensor]:
    """Return the summed L1 distance and 1 - GIoU of the valid pairs. Invalid pairs are replaced by
    equal boxes, which add 0: selecting pairs would synchronise with the device.
    """
    guess_4, truth_4 = (box.masked_fill(~is_pair[..., None], 0.5) for box in (guess_4, truth_4))
    return (guess_4 - truth_4).abs().sum(), (1 - generalized_iou(guess_4, truth_4)).sum()
