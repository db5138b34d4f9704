"""Distillation from a teacher: from its softened probabilities (Hinton et al. 2015,
arXiv:1503.02531, section 2), or from its predicted class only (DeiT, Touvron et al. 2020,
arXiv:2012.12877, section 4).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from .. import recipe as R
from .. import spec as S
from ..data.shards.store import Store
from ..metrics.perplexity import perplexity
from ..nn.heads import ClassifierHeadLayer
from ..nn.kernels.cross_entropy import accumulation_dtype, cross_entropy
from ..nn.model import Model
from ..spec.spec import max_row_length
from . import causal_lm, classification
from .base import (
    ArrayRow,
    Batch,
    LengthLimitedSamples,
    Loss,
    Preprocess,
    TaskContext,
    encode_batch,
    logits_at,
)
from .predict import probabilities, token_losses
from .task import EvaluationData, Metrics, TaskImplementation


class DistillationPreprocess(Preprocess):
    """The rows of CausalLM for documents, otherwise those of Classification."""

    terms = ("label", "teacher")

    def __init__(self, task: R.Distillation, context: TaskContext) -> None:
        if isinstance(context.data.rows, R.Documents):
            self.rows: Preprocess = causal_lm.CausalLMPreprocess(R.CausalLM(), context)
        else:
            same = R.Classification(
                transforms=task.transforms, eval_transforms=task.eval_transforms
            )
            self.rows = classification.preprocess_class(context)(same, context)
        check_teacher(context)
        assert context.teacher is not None
        self.fields = self.rows.fields
        self.frame = self.rows.frame
        self.expert_stacks = self.rows.expert_stacks
        self.rows.max_length = min(
            (
                r
                for r in (self.rows.max_length, max_row_length(context.teacher.spec))
                if r is not None
            ),
            default=None,
        )

    def open_samples(
        self, store: Store, length: int, include_partial: bool = False
    ) -> LengthLimitedSamples:
        return self.rows.open_samples(store, length, include_partial)

    def __call__(
        self, samples: LengthLimitedSamples, index: int, rng: np.random.Generator
    ) -> ArrayRow:
        return self.rows(samples, index, rng)

    def term_counts(self, batch: Any) -> dict[str, int]:
        (units,) = self.rows.term_counts(batch).values()
        return dict.fromkeys(self.terms, units)


def check_teacher(context: TaskContext) -> None:
    if context.teacher is None:
        raise ValueError("Distillation needs a teacher; give the directory of a trained model")
    student = context.spec
    teacher = context.teacher.spec
    if type(teacher.head) is not type(student.head) or isinstance(
        teacher.source, S.Tokens
    ) != isinstance(student.source, S.Tokens):
        raise ValueError(
            f"the teacher turns {type(teacher.source).__name__} into "
            f"{type(teacher.head).__name__}, the student "
            f"{type(student.source).__name__} into {type(student.head).__name__}; give a teacher "
            f"and a student with the same input and head types"
        )
    if num_outputs(teacher) != num_outputs(student):
        raise ValueError(
            f"the teacher has {num_outputs(teacher)} outputs, the student {num_outputs(student)}; "
            "use the same number for both"
        )
    sides = [getattr(spec.source, "image_size", None) for spec in (teacher, student)]
    if sides[0] != sides[1]:
        raise ValueError(
            f"the teacher reads images of {sides[0]} pixels, the student of {sides[1]}; both "
            f"read the same images; use the same image size"
        )
    theirs = tuple(getattr(teacher.head, "labels", None) or ())
    ours = context.data.labels or ()
    # different names may denote the same classes
    if set(theirs) == set(ours) and theirs != tuple(ours):
        raise ValueError(
            f"the teacher's classes are in a different order ({', '.join(theirs[:4])}, …) from "
            f"the data ({', '.join(ours[:4])}, …); "
            "use a teacher that was trained on the same data"
        )


def num_outputs(spec: S.Spec) -> int:
    return spec.head.num_labels if isinstance(spec.head, S.ClassifierHead) else spec.vocab_size


class DistillationLoss(Loss):
    def __init__(self, task: R.Distillation, context: TaskContext) -> None:
        super().__init__(
            task, context, {"label": 1 - task.teacher_weight, "teacher": task.teacher_weight}
        )
        assert context.teacher is not None
        # in a tuple, so that it is neither trained nor saved
        self.teacher = (context.teacher.eval(),)
        self.hard = task.hard_labels
        self.temperature = task.temperature
        self.smoothing = task.label_smoothing

    def forward_outputs(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Return the student's logits for the labels, the student's logits for the teacher, and the
        teacher's logits.
        """
        teacher = self.teacher[0]
        device = next(iter(batch.values())).device
        if next(teacher.parameters()).device != device:
            teacher.to(device)
        with torch.no_grad():
            taught_TV = logits(teacher, batch)[0]
        student_logits = logits(self.model, batch, apart=True)
        return student_logits[0], student_logits[-1], taught_TV

    def loss_sums(self, answer: tuple[Tensor, Tensor, Tensor], batch: Batch) -> dict[str, Tensor]:
        own_TV, copied_TV, taught_TV = answer
        return {
            "label": classification.label_cross_entropy(own_TV, batch, self.smoothing),
            "teacher": cross_entropy(copied_TV, taught_TV.argmax(-1))
            if self.hard
            else soft_cross_entropy(copied_TV, taught_TV, self.temperature),
        }


def logits(model: Model, batch: Batch, apart: bool = False) -> list[Tensor]:
    """Return the logits at every label; with `apart` and a distillation token, those of the class
    token and of the distillation token (DeiT, section 4).
    """
    sequence = encode_batch(model, batch)
    at_T = batch["labels_at"]
    if not isinstance(model.head, ClassifierHeadLayer):
        return [logits_at(model, sequence, at_T)[: len(at_T)]]
    each = (
        model.head.per_token_logits(sequence)
        if apart and model.head.pool == "tokens"
        else [model.head(sequence)]
    )
    return [logits_BV[at_T] for logits_BV in each]


def soft_cross_entropy(student_TV: Tensor, teacher_TV: Tensor, temperature: float) -> Tensor:
    """T² · KL(teacher ‖ student), both at temperature T: T² keeps the gradient's size as T grows
    (arXiv:1503.02531, section 2).
    """
    student, teacher = (
        (x_TV.to(accumulation_dtype(student_TV)) / temperature).log_softmax(-1)
        for x_TV in (student_TV, teacher_TV)
    )
    return F.kl_div(student, teacher, reduction="sum", log_target=True) * temperature**2


class DistillationTask(TaskImplementation):
    """Predictions and metrics are those of the student's task."""

    preprocess_class = DistillationPreprocess
    loss_class = DistillationLoss

    @property
    def learns_text(self) -> bool:
        return isinstance(self.context.data.rows, R.Documents)

    def references(self, data: EvaluationData) -> Sequence[Any]:
        return () if self.learns_text else data.store.column("label")

    def predict(self, outputs: tuple[Tensor, Tensor, Tensor], batch: Batch) -> list[Any]:
        """Return the probability of each class; with a distillation token, from the mean of both
        logits (DeiT, section 4).
        """
        own_TV, copied_TV, _ = outputs
        if self.learns_text:
            return token_losses(own_TV, batch)
        return probabilities((own_TV + copied_TV) / 2)

    def evaluate(self, predictions: Sequence[Any], references: Sequence[Any]) -> Metrics:
        if self.learns_text:
            yield from perplexity([loss for row in predictions for loss, _ in row])
        else:
            yield from classification.metrics_of_probabilities(predictions, references)
