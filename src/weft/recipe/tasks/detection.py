"""Object detection."""

from dataclasses import replace
from typing import ClassVar

from ...spec import DetectionHead, PositiveFraction, PositiveInt, Probability
from ...support.registry import choice, implements
from ..data.image_rows import ImagesWithBoxes
from ..data.rows import RowSchema
from ..transforms import (
    CenterCrop,
    RandomCrop,
    RandomResizedCrop,
    RandomSizeCrop,
    Transform,
    check_transforms,
    transforms_for,
)
from .task import LossWeight, Task


@choice
class DenoisingQueries:
    """Further queries in training: each labelled box, moved, scaled and its class perhaps changed,
    in several versions that do not see each other, to be put right (DN-DETR, arXiv:2203.01305,
    section 4).
    """

    groups: PositiveInt = 5  # versions of each box
    shift: Probability = 0.4  # of the centre, at most, as a fraction of half the box's sides
    scale: Probability = 0.4  # of the sides, at most
    label_flip: Probability = 0.2  # probability of a random class


@choice
class Detection(Task):
    """The boxes of the objects of an image, each with its class: predictions are matched one to one
    with the labelled boxes, then scored (DETR, arXiv:2005.12872, section 3.1). The weights are
    those of the matching cost too.
    """

    name = "detect"
    row_schemas = (ImagesWithBoxes,)
    head = DetectionHead
    hf_class_suffix = "ForObjectDetection"
    verb = "detect"
    metrics = ("ap", "ap50", "ap75")
    metric_packages: ClassVar[dict[str, str]] = {"faster_coco_eval": "vision"}
    packable = False

    class_weight: LossWeight = 1.0
    l1_weight: LossWeight = 5.0
    giou_weight: LossWeight = 2.0
    class_cost: LossWeight | None = None  # of the matching alone; None: the weight
    no_object_weight: PositiveFraction = 0.1  # of a query that is matched with nothing
    auxiliary_losses: bool = True  # the same loss after every layer of the decoder
    denoising: DenoisingQueries | None = None  # for anchor queries
    transforms: tuple[Transform, ...] | None = None  # in training; None: Normalize() alone
    eval_transforms: tuple[Transform, ...] | None = None  # elsewhere; None: as `transforms` say

    def __post_init__(self) -> None:
        if not (self.class_weight or self.l1_weight or self.giou_weight):
            raise ValueError("all weights are 0: nothing could be matched; give one of them")
        check_transforms(self.transforms, self.eval_transforms)
        if any(transform.stage == "mix" for transform in self.transforms or ()):
            raise ValueError(
                "Detection has no mixed boxes; leave MixUp and CutMix out of transforms"
            )
        crops = (CenterCrop, RandomCrop, RandomResizedCrop, RandomSizeCrop)
        if any(isinstance(step, crops) for step in transforms_for(self, evaluation=True) or ()):
            raise ValueError(
                "Detection looks for boxes in the whole image, and its evaluation would crop it; "
                "give eval_transforms without a crop, such as (Resize(size=800, max_size=1333), "
                "Normalize())"
            )

    def for_inference(self, rows: RowSchema) -> Task:
        """Leave out what only the loss needs."""
        return replace(self, auxiliary_losses=False, denoising=None)


implements(Detection, "weft.tasks.detection:DetectionTask")
