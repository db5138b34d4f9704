"""Object detection as set prediction: boxes and classes of an image (DETR, Carion et al. 2020,
arXiv:2005.12872).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .. import recipe as R
from .. import spec as S
from ..data.batches.collate import IGNORE_INDEX
from ..data.images.boxes import BoxSamples, decode_boxed, relative_boxes
from ..data.shards.store import Store
from ..metrics.detection import MAX_DETECTIONS, detection_metrics
from ..nn.detection import DetectionDecoder
from ..nn.heads import Detections
from ..nn.kernels.cross_entropy import accumulation_dtype
from ..nn.layers.images.object_queries import ObjectStates
from .base import ArrayRow, Batch, LengthLimitedSamples, Loss, Preprocess, TaskContext, check_head
from .detection_denoising import add_noised_queries, noise_objects
from .detection_matching import (
    FocalScores,
    Objects,
    Scores,
    box_sums,
    match,
    matched_boxes,
    matched_labels,
)
from .task import EvaluateOptions, EvaluationData, Metrics, TaskImplementation

AUXILIARY = "auxiliary_"  # before a term: its sum over all decoder layers but the last
DENOISING = "denoising_"  # before a term: of the noised queries, over all layers that have a loss


class DetectionPreprocess(Preprocess):
    """Apply the task's transforms to an image and its boxes; boxes are fractions of the image."""

    def __init__(self, task: R.Detection, context: TaskContext) -> None:
        check_detection(task, context)
        super().__init__(task, context)
        source = context.spec.source
        assert isinstance(source, S.ResNet)
        self.channels = source.channels
        self.queries = context.spec.queries
        self.fields = {}
        self.classes = len(context.data.labels or ())
        self.scores = build_scores(task, context.spec)
        self.terms = tuple(loss_weights(task, context.spec))

    def read_samples(self, store: Store, length: int, include_partial: bool) -> Any:
        # training only: more objects than queries cannot be matched
        queries = None if include_partial else self.queries
        transforms = R.transforms_for(self.task, include_partial)
        return BoxSamples(store, self.classes, transforms, queries)

    def __call__(
        self, samples: LengthLimitedSamples, index: int, rng: np.random.Generator
    ) -> ArrayRow:
        sample = samples[index]
        rows = samples.samples
        task = self.task
        assert isinstance(rows, BoxSamples)
        image, corners_N4 = decode_boxed(sample, self.channels)
        size = np.array((image.width, image.height))
        pixels_CRS, moved_N4, keep_N = rows.pipeline(image, corners_N4, rng)
        assert moved_N4 is not None
        boxes = relative_boxes(moved_N4, pixels_CRS.shape[2], pixels_CRS.shape[1])
        labels = np.asarray(sample["labels"], np.int64)[keep_N]
        noised = (
            noise_objects(boxes, labels, self.classes, task.denoising, rng)
            if task.denoising
            else {}
        )
        return noised | {
            "image": pixels_CRS,
            "boxes": boxes.astype(np.float32),
            "labels": labels,
            "original_size": size,
        }

    def term_counts(self, batch: Any) -> dict[str, float]:  # type: ignore[override]
        """Box terms are divided by the number of boxes, class terms as `Scores.count` defines; both
        are known before matching.
        """
        counts_B = (batch["labels"] != IGNORE_INDEX).sum(1)
        boxes = float(counts_B.sum())
        classes = self.scores.count(counts_B, self.queries)
        counts = {"class": classes, "l1": boxes, "giou": boxes}
        groups = self.task.denoising.groups if self.task.denoising else 0
        return {
            term: groups * boxes
            if term.startswith(DENOISING)
            else counts[term.removeprefix(AUXILIARY)]
            for term in self.terms
        }


def check_detection(task: R.Detection, context: TaskContext) -> None:
    check_head(task, context)
    s = context.spec
    if not isinstance(s.source, S.ResNet):
        raise ValueError(
            f"Detection reads images of any size through a ResNet, not {type(s.source).__name__}; "
            "use replace(model, source=ResNet(…))"
        )
    if task.denoising is not None and not isinstance(s.target, S.AnchorQueries):
        raise ValueError(
            f"denoising needs boxes as queries, not {type(s.target).__name__}; use a model with "
            "target=AnchorQueries(…), such as weft.dab_detr, or leave denoising None"
        )


def build_scores(task: R.Detection, spec: S.Spec) -> Scores:
    """Return the interpretation of the head's logits."""
    assert isinstance(spec.head, S.DetectionHead)
    return Scores(task) if spec.head.scores == "softmax" else FocalScores(task)


def loss_weights(task: R.Detection, spec: S.Spec) -> dict[str, float]:
    """Return every loss term with its weight, without terms of weight 0."""
    assert spec.decoder is not None
    each = {"class": task.class_weight, "l1": task.l1_weight, "giou": task.giou_weight}
    deep = task.auxiliary_losses and len(spec.decoder.blocks) > 1
    prefixes = [""]
    prefixes += [AUXILIARY] if deep else []
    prefixes += [DENOISING] if task.denoising is not None else []
    return {prefix + term: w for prefix in prefixes for term, w in each.items() if w}


class DetectionLoss(Loss):
    def __init__(self, task: R.Detection, context: TaskContext) -> None:
        super().__init__(task, context, loss_weights(task, context.spec))
        self.scores = build_scores(task, context.spec)
        self.queries = context.spec.queries
        self.noised_labels: nn.Embedding | None = None  # of no use after training
        if task.denoising is not None:
            classes = len(context.data.labels or ())
            self.noised_labels = nn.Embedding(classes, context.spec.width)
            self.initialise_own_parameters(context)

    def forward_outputs(self, batch: Batch) -> Detections:
        """Return logits (Y, B, N, V) and boxes (Y, B, N, 4) of every layer that has a loss, in
        order; noised queries follow the learned ones.
        """
        model = self.model
        image_BCRS = batch["image"].to(model.dtype)
        mask_BRS = batch.get("image_attention_mask")
        memory = model.encode(model.embed(image_BCRS, attention_mask=mask_BRS))
        queries = model.embed_target(None, memory)
        if self.noised_labels is not None:
            content_BMPD = self.noised_labels(batch["noised_labels"])
            assert isinstance(queries, ObjectStates)
            queries = add_noised_queries(queries, content_BMPD, batch)
        if not self.task.auxiliary_losses:
            outputs = model.read(model.decode(queries, memory))
            assert isinstance(outputs, Detections)
            return Detections(outputs.logits_BNV[None], outputs.boxes_BN4[None])
        assert isinstance(model.decoder, DetectionDecoder)
        states = model.decoder(queries, memory, model.target, model.head, every_layer=True)
        outputs = model.read(states)
        assert isinstance(outputs, Detections)
        return outputs

    def loss_sums(self, answer: Detections, batch: Batch) -> dict[str, Tensor]:
        dtype = accumulation_dtype(answer.logits_BNV)
        logits_YBNV = answer.logits_BNV.to(dtype)
        boxes_YBN4 = answer.boxes_BN4.to(dtype)
        objects = Objects(batch["labels"], batch["boxes"].to(dtype))
        N = self.queries
        logits = logits_YBNV[:, :, :N]
        boxes = boxes_YBN4[:, :, :N]
        at = match(self.task, self.scores, logits, boxes, objects)
        sums = self.matched_sums("", logits[-1:], boxes[-1:], at[-1:], objects)
        if len(at) > 1:
            sums |= self.matched_sums(AUXILIARY, logits[:-1], boxes[:-1], at[:-1], objects)
        if self.noised_labels is not None:
            sums |= self.noised_sums(logits_YBNV[:, :, N:], boxes_YBN4[:, :, N:], objects)
        return {term: sums[term] for term in self.weights if term in sums}

    def matched_sums(
        self, prefix: str, logits: Tensor, boxes: Tensor, at: Tensor, objects: Objects
    ) -> dict[str, Tensor]:
        """Return the loss terms of some layers."""
        labels = matched_labels(at, objects, self.queries)
        l1, giou = box_sums(*matched_boxes(boxes, at, objects))
        classes = self.scores.sum(logits, labels)
        return {f"{prefix}class": classes, f"{prefix}l1": l1, f"{prefix}giou": giou}

    def noised_sums(self, logits: Tensor, boxes: Tensor, objects: Objects) -> dict[str, Tensor]:
        """Return the terms of noised queries, each compared with its original box without matching
        (DN-DETR, section 4.3).
        """
        assert self.task.denoising is not None
        shape = (objects.label_BM.shape[1], self.task.denoising.groups)
        logits, boxes = (t.unflatten(2, shape) for t in (logits, boxes))
        label = objects.label_BM[None, :, :, None].expand(boxes.shape[:-1])
        truth = objects.box_BM4[None, :, :, None].expand_as(boxes)
        l1, giou = box_sums(boxes, truth, label != IGNORE_INDEX)
        classes = self.scores.sum(logits, label)
        return {f"{DENOISING}class": classes, f"{DENOISING}l1": l1, f"{DENOISING}giou": giou}


class DetectionTask(TaskImplementation):
    preprocess_class = DetectionPreprocess
    loss_class = DetectionLoss

    def predict_store(self, store: Store, options: EvaluateOptions) -> list[Any]:
        """Predict one image at a time where convolutions read the padding of smaller images, as in
        published models, so that a prediction does not depend on the batch.
        """
        source = self.context.spec.source
        assert isinstance(source, S.ResNet)
        if source.padding == "zeros":
            options = options._replace(predict=options.predict._replace(batch_size=1))
        return super().predict_store(store, options)

    def predict(self, outputs: Any, batch: Batch) -> list[Any]:
        """Return the boxes of each image, sorted by score: class, score, and x, y, width and height
        in pixels of the stored image.
        """
        N = self.context.spec.queries
        scores = build_scores(self.task, self.context.spec)
        score_BNV = scores.probabilities(outputs.logits_BNV[-1, :, :N].double())
        boxes_BN4 = outputs.boxes_BN4[-1, :, :N].double()
        size_BN2 = boxes_BN4[..., 2:]
        corner_BN2 = boxes_BN4[..., :2] - boxes_BN4[..., 2:] / 2
        pixels_BN4 = torch.cat((corner_BN2, size_BN2), -1)
        pixels_BN4 = pixels_BN4 * batch["original_size"].repeat(1, 2)[:, None]
        if isinstance(scores, FocalScores):  # a box may have several classes
            V = score_BNV.shape[-1]
            score_BT, at_BT = score_BNV.flatten(1).sort(dim=1, descending=True, stable=True)
            label_BT = at_BT % V
            query_BT = at_BT // V
        else:
            best_BN, label_BN = score_BNV.max(-1)
            score_BT, query_BT = best_BN.sort(dim=1, descending=True, stable=True)
            label_BT = label_BN.gather(1, query_BT)
        box_BT4 = pixels_BN4.gather(1, query_BT[..., None].expand(-1, -1, 4))
        rows_BT6 = torch.cat((label_BT[..., None], score_BT[..., None], box_BT4), -1)
        plain = rows_BT6[:, :MAX_DETECTIONS].tolist()
        return [[(int(row[0]), *row[1:]) for row in image] for image in plain]

    def references(self, data: EvaluationData) -> Sequence[Any]:
        return [boxes_of(data.store.row(i)) for i in range(len(data.store))]

    def evaluate(self, predictions: Sequence[Any], references: Sequence[Any]) -> Metrics:
        yield from detection_metrics(predictions, references)


def boxes_of(row: dict[str, Any]) -> list[tuple[float, ...]]:
    """Return class, x, y, width and height of each box of a stored row."""
    boxes = np.asarray(row["boxes"], float).reshape(-1, 4).tolist()
    return [(int(label), *box) for label, box in zip(row["labels"], boxes, strict=True)]
