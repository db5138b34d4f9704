"""DeiT: ViT with a second token that learns from a teacher (Touvron et al. 2020, arXiv:2012.12877)."""
from typing import Any

from ..spec import Classes, Features, Model, Normal, Transform
from ..weights import Family, Table, both, sizes
from . import vit
from .vit import FIELDS, body

SIZES = sizes("depth width heads hidden", base=(12, 768, 12, 3072), tiny=(12, 192, 3, 768), small=(12, 384, 6, 1536))


def make(head: Any = None, classes: int = 1000, **rest: Any) -> Model:
    return vit.make(tokens=("class", "distillation"), head=head or Classes(outputs=classes, pool="tokens"), **rest)


TABLE: Table = (
    *body("deit", ("cls_token", "distillation_token")), *both("head.out.0", "cls_classifier", when="Classes"),
    *both("head.out.1", "distillation_classifier", when="Classes"), *both("head.out", "classifier", when="Classes"))

deit = Family("deit", "arXiv:2012.12877", make, SIZES, "deit", FIELDS, TABLE, prefix="deit.", start=Normal(cut=2.0),
              only={"pooler_act": ("tanh",)},
              heads={"DeiTForImageClassificationWithTeacher": lambda m, l: Classes(outputs=l.outputs, labels=l.labels, pool="tokens"),
                     "DeiTForImageClassification": vit.classes,
                     "DeiTModel": lambda m, l: Features(transform=Transform(activation="tanh"))})
