"""Classes and numbers of texts, pairs and images."""

from typing import Any, Literal

from ...spec import Probability
from ...support.registry import choice, implements
from ..data.image_rows import LabelledImages
from ..data.rows import LabelledTexts, RowSchema
from ..transforms import Transform, check_transforms
from .pair_task import PairTask
from .task import LossWeight, TableFacts


@choice
class Classification(PairTask):
    """Predict the class of a text, a pair or an image. `input_format`: BERT's [CLS] A [SEP] B
    [SEP], or GPT's start A delimiter B extract.
    """

    name = "classify"
    variants = ("pair", "similarity")
    row_schemas = (LabelledTexts, LabelledImages)
    hf_class_suffix = "ForSequenceClassification"
    metrics = ("accuracy", "f1", "matthews")
    numeric_task = "regress"

    input_format: Literal["bert", "gpt"] = "bert"
    both_orders: bool = False  # GPT's similarity: both orders, added
    label_smoothing: Probability = 0.0
    lm_weight: LossWeight = 0.0  # of GPT's auxiliary next-token loss, for decoders (its paper: 0.5)
    transforms: tuple[Transform, ...] | None = (
        None  # of images in training; None: a random resized crop, mirrored half of the time
    )
    eval_transforms: tuple[Transform, ...] | None = None  # elsewhere; None: as `transforms` say

    def __post_init__(self) -> None:
        check_transforms(self.transforms, self.eval_transforms)

    @classmethod
    def infer_options(cls, name: str) -> dict[str, Any]:
        return {"numeric": False if name in (cls.name, "pair") else None, "pair": name == "pair"}

    @classmethod
    def matches(cls, table: TableFacts) -> float:
        return 1.0


implements(Classification, "weft.tasks.classification:ClassificationTask")


@choice
class Regression(PairTask):
    """Predict a number for a text or a pair, with the squared error."""

    name = "regress"
    row_schemas = (LabelledTexts,)
    hf_class_suffix = "ForSequenceClassification"
    metrics = ("pearson", "spearman")
    loss_unit = "squared error"

    input_format: Literal["bert", "gpt"] = "bert"
    both_orders: bool = False
    lm_weight: LossWeight = 0.0

    @classmethod
    def default_rows(cls) -> RowSchema:
        return LabelledTexts(numeric_label=True)

    @classmethod
    def matches(cls, table: TableFacts) -> float:
        return 0.5  # of the same rows; the labels decide


implements(Regression, "weft.tasks.classification:RegressionTask")
