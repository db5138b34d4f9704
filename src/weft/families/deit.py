"""DeiT: ViT with a distillation token (Touvron et al. 2020, arXiv:2012.12877)."""

from typing import Any

from ..spec import ClassifierHead, HeadTransform, NoHead, NormalInit, Spec
from . import vit
from .base import Family, size_table
from .vit import FIELDS, body
from .weights import WeightTable, weight_and_bias

SIZES = size_table(
    "depth width heads hidden",
    base=(12, 768, 12, 3072),
    tiny=(12, 192, 3, 768),
    small=(12, 384, 6, 1536),
)


def make(head: Any = None, classes: int = 1000, **rest: Any) -> Spec:
    return vit.make(
        tokens=("class", "distillation"),
        head=head or ClassifierHead(num_labels=classes, pooling="tokens"),
        **rest,
    )


TABLE: WeightTable = (
    *body("deit", ("cls_token", "distillation_token")),
    *weight_and_bias("head.out.0", "cls_classifier", when="ClassifierHead"),
    *weight_and_bias("head.out.1", "distillation_classifier", when="ClassifierHead"),
    *weight_and_bias("head.out", "classifier", when="ClassifierHead"),
)

deit = Family(
    "deit",
    "arXiv:2012.12877",
    make,
    SIZES,
    "deit",
    FIELDS,
    TABLE,
    prefix="deit.",
    init=NormalInit(truncate_at=2.0),
    supported_values={"pooler_act": ("tanh",)},
    heads={
        "DeiTForImageClassificationWithTeacher": lambda m, l: ClassifierHead(
            num_labels=l.outputs, labels=l.labels, pooling="tokens"
        ),
        "DeiTForImageClassification": vit.classes,
        "DeiTModel": lambda m, l: NoHead(transform=HeadTransform(activation="tanh")),
    },
)
