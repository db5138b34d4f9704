"""Denoising queries for detection: noised boxes in addition to the learned queries (DN-DETR, Li et
al. 2022, arXiv:2203.01305, section 4).
"""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from .. import recipe as R
from ..data.batches.collate import IGNORE_INDEX
from ..nn.kernels.masks import SHARED_DOCUMENT
from ..nn.layers.images.object_queries import ObjectStates
from .base import ArrayRow, Batch

SMALLEST = 1e-3  # side of a noised box


def noise_objects(
    boxes_M4: np.ndarray,
    labels_M: np.ndarray,
    classes: int,
    task: R.DenoisingQueries,
    rng: np.random.Generator,
) -> ArrayRow:
    """Return noised copies of every box and class of an image: boxes (M, groups · 4) as centre and
    sides, labels (M, groups).
    """
    shape = (len(boxes_M4), task.groups)
    draw = rng.random((*shape, 4)) * 2 - 1
    centre = boxes_M4[:, None, :2]
    sides = boxes_M4[:, None, 2:]
    moved = centre + draw[..., :2] * task.shift * sides / 2
    scaled = sides * (1 + draw[..., 2:] * task.scale)
    noised = np.concatenate((moved.clip(0, 1), scaled.clip(SMALLEST, 1)), -1)
    flips = rng.random(shape) < task.label_flip
    other = rng.integers(0, classes, shape)
    return {
        "noised_boxes": noised.reshape(len(noised), 4 * task.groups).astype(np.float32),
        "noised_labels": np.where(flips, other, labels_M[:, None]),
    }


def add_noised_queries(queries: ObjectStates, content_BMPD: Tensor, batch: Batch) -> ObjectStates:
    """Append the noised queries to the learned ones, box by box, so that a query's index does not
    depend on the batch.

    Noised queries see their own group and the learned queries, learned ones only each other
    (section 4.4), so that their outputs do not depend on noised queries. The paper's indicator, a
    number in the content that marks noised queries, is omitted.
    """
    assert queries.anchor_BN4 is not None
    B, M, P, _ = content_BMPD.shape
    is_object_BM1 = (batch["labels"] != IGNORE_INDEX)[..., None]
    noised_BMF = batch["noised_boxes"].masked_fill(~is_object_BM1, 0.5)  # any box with an area
    group_P = torch.arange(1, P + 1, device=content_BMPD.device)
    slot_MP = torch.arange(P + 1, P + 1 + M * P, device=group_P.device).view(M, P)
    group_BS = torch.where(is_object_BM1, group_P, slot_MP).flatten(1)
    learned_BN = group_BS.new_full((B, queries.x_BLD.shape[1]), SHARED_DOCUMENT)
    anchors_BS4 = noised_BMF.reshape(B, M * P, 4).to(queries.anchor_BN4.dtype)
    return replace(
        queries,
        x_BLD=torch.cat((queries.x_BLD, content_BMPD.flatten(1, 2).to(queries.x_BLD.dtype)), 1),
        anchor_BN4=torch.cat((queries.anchor_BN4, anchors_BS4), 1),
        group_ids_BN=torch.cat((learned_BN, group_BS), 1),
    )
