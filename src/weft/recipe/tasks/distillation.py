"""Distillation."""

from ...spec import PositiveFloat, PositiveFraction, Probability
from ...support.registry import choice, implements
from ..data.image_rows import LabelledImages
from ..data.rows import Documents, LabelledTexts, RowSchema
from ..transforms import Transform, check_transforms
from .causal_lm import CausalLM
from .classification import Classification
from .task import Task


@choice
class Distillation(Task):
    """Learn from a teacher: from its softened logits (arXiv:1503.02531), or from its class with a
    distillation token (DeiT, arXiv:2012.12877).
    """

    row_schemas = (Documents, LabelledTexts, LabelledImages)
    packable = False
    model_folders = ("teacher",)

    teacher: str  # a model folder
    hard_labels: bool = False
    temperature: PositiveFloat = 3.0
    teacher_weight: PositiveFraction = 0.5
    label_smoothing: Probability = 0.0  # of the data's own labels
    transforms: tuple[Transform, ...] | None = None  # of images, as in Classification
    eval_transforms: tuple[Transform, ...] | None = None

    def __post_init__(self) -> None:
        check_transforms(self.transforms, self.eval_transforms)

    def validation_metrics(self, rows: RowSchema) -> tuple[str, ...]:
        return self.for_inference(rows).metrics

    def for_inference(self, rows: RowSchema) -> Task:
        """Return the task that the student was taught."""
        if isinstance(rows, Documents):
            return CausalLM()
        return Classification(transforms=self.transforms, eval_transforms=self.eval_transforms)


implements(Distillation, "weft.tasks.distillation:DistillationTask")
