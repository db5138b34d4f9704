"""Boxes and classes of the objects of an image, as a set (DETR, Carion et al. 2020, arXiv:2005.12872)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from .. import recipe as R
from .. import spec as S
from ..data.boxes import (
    BoxSamples,
    decode_boxed,
    relative_boxes,
    resize_boxes,
    transform_boxes,
)
from ..data.collate import IGNORE_INDEX
from ..data.images import normalise
from ..kernels.cross_entropy import accumulation_dtype
from ..metrics.detection import MAX_DETECTIONS, detection_metrics
from ..model.heads import Detections
from .base import ArrayRow, Batch, LengthLimitedSamples, Loss, Preprocess, TaskContext, check_head
from .detection_matching import Objects, box_sums, class_scores, class_sum, match
from .task import EvaluationData, Metrics, TaskImplementation

if TYPE_CHECKING:
    from ..data.store import Store

TERMS = ("class", "l1", "giou")
AUXILIARY = "auxiliary_"  # before a term: its sum over all decoder layers but the last


class DetectionPreprocess(Preprocess):
    """An image with its boxes, mirrored and resized in training; in validation resized alone."""

    def __init__(self, task: R.Detection, context: TaskContext) -> None:
        check_detection(task, context)
        super().__init__(task, context)
        source = context.spec.source
        assert isinstance(source, S.ResNet)
        self.channels, self.queries, self.fields = source.channels, context.spec.queries, {}
        self.classes = len(context.data.labels or ())
        self.terms = loss_terms(task, context.spec)

    def read_samples(self, store: "Store", length: int, include_partial: bool) -> Any:
        return BoxSamples(store, self.classes, deterministic=include_partial)

    def __call__(
        self, samples: LengthLimitedSamples, index: int, rng: np.random.Generator
    ) -> ArrayRow:
        sample, rows = samples[index], samples.samples
        assert isinstance(rows, BoxSamples)
        image, corners_N4 = decode_boxed(sample, self.channels)
        size = np.array((image.width, image.height))
        if rows.deterministic:
            image, corners_N4 = resize_boxes(image, corners_N4, self.value, choice=-1)
        else:
            image, corners_N4 = transform_boxes(image, corners_N4, rng, self.value)
        return {
            "image": normalise(image),
            "boxes": relative_boxes(corners_N4, *image.size).astype(np.float32),
            "labels": np.asarray(sample["labels"], np.int64),
            "original_size": size,
        }

    def term_counts(self, batch: Any) -> dict[str, float]:
        """Boxes are divided by their number, classes by the weight of all queries: known before they are matched."""
        is_object_BM = batch["labels"] != IGNORE_INDEX
        boxes, rows = int(is_object_BM.sum()), len(is_object_BM)
        matched = int(is_object_BM.sum(1).clip(max=self.queries).sum())
        weight = matched + self.value.no_object_weight * (rows * self.queries - matched)
        counts = {"class": weight, "l1": float(boxes), "giou": float(boxes)}
        return {term: counts[term.removeprefix(AUXILIARY)] for term in self.terms}


def check_detection(task: R.Detection, context: TaskContext) -> None:
    check_head(task, context)
    if not isinstance(context.spec.source, S.ResNet):
        raise ValueError(
            f"Detection reads images of any size through a ResNet, not {type(context.spec.source).__name__}; "
            "use replace(model, source=ResNet(…))"
        )


def count_auxiliary(task: R.Detection, spec: S.Spec) -> int:
    """The number of layers that have a loss beside the last one."""
    assert spec.decoder is not None
    return len(spec.decoder.blocks) - 1 if task.auxiliary_losses else 0


def loss_terms(task: R.Detection, spec: S.Spec) -> tuple[str, ...]:
    weights = (task.class_weight, task.l1_weight, task.giou_weight)
    terms = [term for term, weight in zip(TERMS, weights, strict=True) if weight]
    auxiliary = [AUXILIARY + term for term in terms] if count_auxiliary(task, spec) else []
    return (*terms, *auxiliary)


class DetectionLoss(Loss):
    def __init__(self, task: R.Detection, context: TaskContext) -> None:
        weights = dict(
            zip(TERMS, (task.class_weight, task.l1_weight, task.giou_weight), strict=True)
        )
        terms = loss_terms(task, context.spec)
        super().__init__(
            task, context, {term: weights[term.removeprefix(AUXILIARY)] for term in terms}
        )
        self.auxiliary = count_auxiliary(task, context.spec) > 0

    def forward_outputs(self, batch: Batch) -> Detections:
        """Of every layer that has a loss, the last one last: logits (Y, B, N, V) and boxes (Y, B, N, 4)."""
        model = self.model
        image_BCRS = batch["image"].to(model.dtype)
        mask_BRS = batch.get("image_attention_mask")
        memory = model.encode(model.embed(image_BCRS, attention_mask=mask_BRS))
        sequence = model.decode(
            model.embed_target(None, memory), memory, every_layer=self.auxiliary
        )
        layers = sequence.layer_outputs or (sequence.x_BLD,)
        outputs = model.read(sequence._replace(x_BLD=torch.stack(layers)))
        assert isinstance(outputs, Detections)
        return outputs

    def loss_sums(self, answer: Detections, batch: Batch) -> dict[str, Tensor]:
        dtype = accumulation_dtype(answer.logits_BNV)
        logits_YBNV, boxes_YBN4 = answer.logits_BNV.to(dtype), answer.boxes_BN4.to(dtype)
        objects = Objects(batch["labels"], batch["boxes"].to(dtype))
        match_YBM = match(self.value, logits_YBNV, boxes_YBN4, objects)
        sums: dict[str, Tensor] = {}
        for prefix, part in (("", slice(-1, None)), (AUXILIARY, slice(-1))):
            if prefix and not self.auxiliary:
                continue
            at = match_YBM[part]
            weight = self.value.no_object_weight
            sums[f"{prefix}class"] = class_sum(logits_YBNV[part], at, objects, weight)
            sums[f"{prefix}l1"], sums[f"{prefix}giou"] = box_sums(boxes_YBN4[part], at, objects)
        return {term: sums[term] for term in sums if term in self.weights}


class DetectionTask(TaskImplementation):
    preprocess_class, loss_class = DetectionPreprocess, DetectionLoss

    def predict(self, outputs: Any, batch: Batch) -> list[Any]:
        """Of each image its boxes, the surest first: class, score, and x, y, width and height in pixels of the stored image."""
        score_BN, label_BN = class_scores(outputs.logits_BNV[-1].double()).max(-1)
        boxes_BN4 = outputs.boxes_BN4[-1].double()
        corner_BN4 = torch.cat(
            (boxes_BN4[..., :2] - boxes_BN4[..., 2:] / 2, boxes_BN4[..., 2:]), -1
        )
        pixels_BN4 = corner_BN4 * batch["original_size"].repeat(1, 2)[:, None]
        order_BN = score_BN.argsort(dim=1, descending=True, stable=True)[:, :MAX_DETECTIONS]
        rows_BN6 = torch.cat((label_BN[..., None], score_BN[..., None], pixels_BN4), -1)
        plain = rows_BN6.gather(1, order_BN[..., None].expand(-1, -1, 6)).tolist()
        return [[(int(row[0]), *row[1:]) for row in image] for image in plain]

    def references(self, data: EvaluationData) -> Sequence[Any]:
        rows = (data.store.row(i) for i in range(len(data.store)))
        return [
            [
                (int(label), *box)
                for label, box in zip(
                    row["labels"],
                    np.asarray(row["boxes"], float).reshape(-1, 4).tolist(),
                    strict=True,
                )
            ]
            for row in rows
        ]

    def evaluate(self, predictions: Sequence[Any], references: Sequence[Any]) -> Metrics:
        yield from detection_metrics(predictions, references)
