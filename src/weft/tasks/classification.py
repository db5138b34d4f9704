"""Classification and regression of a text, a pair of texts or an image (BERT, arXiv:1810.04805,
section 4.1; GPT, Radford et al. 2018, section 3.3; ViT, arXiv:2010.11929, section 3.2).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .. import recipe as R
from .. import spec as S
from ..data.batches.collate import attention_mask
from ..data.images.image_samples import ImageSamples
from ..data.shards.store import Store
from ..metrics.classification import classification_metrics
from ..metrics.correlation import regression_metrics
from ..nn.heads import ClassifierHeadLayer, pool_tokens
from ..nn.kernels.cross_entropy import accumulation_dtype, cross_entropy
from ..nn.layers.sequence import HiddenStates
from . import auxiliary_lm
from .base import (
    ArrayRow,
    Batch,
    LengthLimitedSamples,
    Loss,
    Preprocess,
    TaskContext,
    check_head,
    encode_batch,
    selected_labels,
)
from .pair_encoding import PairEncoding
from .predict import probabilities
from .task import EvaluationData, Metrics, TaskImplementation

Value = R.Classification | R.Regression
# fields of the second order of a symmetric pair
SWAPPED_FIELDS = {
    "tokens": "swapped",
    "segments": "swapped_segments",
}
LABEL_FIELD = {"class": "labels", "number": "number"}  # a term's field in a batch


def check_classification(task: Value, context: TaskContext) -> None:
    row = context.data.rows
    number = isinstance(task, R.Regression)
    check_head(task, context, 1 if number else None)
    if isinstance(row, R.LabelledImages) != isinstance(context.spec.source, S.Patches):
        raise ValueError(
            f"the data are {type(row).__name__}, but the model reads "
            f"{type(context.spec.source).__name__}"
        )
    if number != getattr(row, "numeric_label", False):
        raise ValueError(
            "Regression needs numbers as labels; prepare the data with "
            "LabelledTexts(numeric_label=True)"
            if number
            else "the data's labels are numbers; use Regression, or prepare them with "
            "LabelledTexts(numeric_label=False)"
        )
    if isinstance(row, R.LabelledTexts) and getattr(task, "transforms", None) is not None:
        raise ValueError("transforms apply to images, but the data are texts; remove `transforms`")
    auxiliary_lm.check_lm_weight(task, context)
    if task.both_orders and getattr(row, "second_text", None) is None:
        raise ValueError(
            "symmetric=True reads a pair in both orders, but the data have no second text; use "
            "symmetric=False"
        )


def preprocess_class(context: TaskContext) -> type[Any]:
    images = isinstance(context.spec.source, S.Patches)
    return ImageClassificationPreprocess if images else TextClassificationPreprocess


class TextClassificationPreprocess(Preprocess):
    """A text or a pair becomes one row; a symmetric pair becomes two rows of the same length."""

    def __init__(self, task: Value, context: TaskContext) -> None:
        check_classification(task, context)
        super().__init__(task, context)
        self.join = PairEncoding(task, context, task.input_format)
        self.terms = auxiliary_lm.loss_terms(task, *loss_term(task))
        self.symmetric = task.both_orders
        assert isinstance(context.data.rows, R.LabelledTexts)
        self.pair = context.data.rows.second_text is not None
        self.fields = self.join.fields(self.pad_id)
        self.frame = self.join.frame
        if self.symmetric:
            self.fields |= self.join.fields(self.pad_id, **SWAPPED_FIELDS)

    def read_samples(self, store: Store, length: int, include_partial: bool) -> Any:
        return self.join.table(store, length, "first", *(["second"] if self.pair else []))

    def __call__(
        self, samples: LengthLimitedSamples, index: int, rng: np.random.Generator
    ) -> ArrayRow:
        sample = samples[index]
        first = sample["first"]
        second = sample["second"] if self.pair else None
        row = self.join(first, second, samples.length)
        if self.symmetric:
            assert second is not None
            other = self.join(*self.join.cut(first, second, samples.length)[::-1], samples.length)
            row |= {SWAPPED_FIELDS[name]: part for name, part in other.items()}
        return row | {LABEL_FIELD[self.terms[0]]: np.asarray(sample["label"])}

    def term_counts(self, batch: Any) -> dict[str, int]:
        counts = (
            {"number": len(batch["number"])} if "number" in batch else super().term_counts(batch)
        )
        if auxiliary_lm.LM_TERM in self.terms:
            counts[auxiliary_lm.LM_TERM] = (1 + self.symmetric) * auxiliary_lm.count_next_tokens(
                batch["tokens"], attention_mask(batch, "tokens")
            )
        return counts


class ImageClassificationPreprocess(Preprocess):
    """Apply the task's transforms to an image and, if they mix two samples, to the labels."""

    def __init__(self, task: R.Classification, context: TaskContext) -> None:
        check_classification(task, context)
        super().__init__(task, context)
        self.source = context.spec.source
        self.terms = loss_term(task)
        self.fields = {}

    def read_samples(self, store: Store, length: int, include_partial: bool) -> Any:
        assert isinstance(self.source, S.Patches)
        return ImageSamples(
            store,
            self.source,
            deterministic=include_partial,
            transforms=R.transforms_for(self.task, include_partial),
        )

    def __call__(
        self, samples: LengthLimitedSamples, index: int, rng: np.random.Generator
    ) -> ArrayRow:
        return image_samples(samples).labelled(samples[index], rng)


def image_samples(samples: LengthLimitedSamples) -> ImageSamples:
    assert isinstance(samples.samples, ImageSamples)
    return samples.samples


def loss_term(task: Any) -> tuple[str]:
    return ("number",) if isinstance(task, R.Regression) else ("class",)


class ClassificationLoss(Loss):
    def __init__(self, task: Value, context: TaskContext) -> None:
        super().__init__(task, context, auxiliary_lm.loss_weights(task, *loss_term(task)))
        self.task = task
        self.smoothing = task.label_smoothing if isinstance(task, R.Classification) else None

    def forward_outputs(self, batch: Batch) -> Tensor | auxiliary_lm.TaskAndLMOutputs:
        inputs = stack_both_orders(batch) if self.task.both_orders else batch
        sequence = encode_batch(self.model, inputs)
        logits_BV = (
            self.both_order_logits(sequence) if self.task.both_orders else self.model.read(sequence)
        )
        assert isinstance(logits_BV, Tensor)
        return auxiliary_lm.with_lm_loss(
            logits_BV, self.model, sequence, inputs.get("tokens", logits_BV), self.task
        )

    def both_order_logits(self, sequence: HiddenStates) -> Tensor:
        """Add the vectors of both orders before the linear map (GPT, section 3.3: similarity)."""
        head = self.model.head
        assert isinstance(head, ClassifierHeadLayer)
        assert isinstance(head.out, nn.Linear)
        x_BD = head.transform(pool_tokens(sequence, head.pool))
        logits_BV: Tensor = head.out(head.drop(x_BD.unflatten(0, (-1, 2)).sum(1)))
        return logits_BV

    def loss_sums(
        self, answer: Tensor | auxiliary_lm.TaskAndLMOutputs, batch: Batch
    ) -> dict[str, Tensor]:
        logits_BV = auxiliary_lm.task_logits(answer)
        more = auxiliary_lm.lm_term(answer)
        if self.smoothing is not None:
            return {"class": label_cross_entropy(logits_BV, batch, self.smoothing)} | more
        return {
            "number": (logits_BV[:, 0].to(accumulation_dtype(logits_BV)) - batch["number"])
            .square()
            .sum()
        } | more


def label_cross_entropy(logits_BV: Tensor, batch: Batch, smoothing: float) -> Tensor:
    """Return the sum over samples; mixed samples have two weighted labels (mixup, arXiv:1710.09412,
    section 2: the loss is linear in the target).
    """
    if "mixed_labels" not in batch:
        return cross_entropy(logits_BV, selected_labels(batch), smoothing)
    logits_BV = logits_BV.to(accumulation_dtype(logits_BV))
    first_B, second_B = (
        F.cross_entropy(logits_BV, batch[name], reduction="none", label_smoothing=smoothing)
        for name in ("labels", "mixed_labels")
    )
    return second_B.lerp(first_B, batch["label_weight"].to(first_B.dtype)).sum()


def stack_both_orders(batch: Batch) -> Batch:
    """Return a batch with both orders of every sample: all rows A B, then all rows B A."""
    return {
        name: torch.stack((batch[name], batch[SWAPPED_FIELDS.get(name, name)]), 1).flatten(0, 1)
        for name in ("tokens", "tokens_attention_mask", "segments")
        if name in batch
    }


class ClassificationTask(TaskImplementation):
    loss_class = ClassificationLoss

    def __init__(self, task: Value, context: TaskContext) -> None:
        self.preprocess_class = preprocess_class(context)
        super().__init__(task, context)

    def predict(self, outputs: Any, batch: Batch) -> list[Any]:
        """The probability of each class."""
        return probabilities(auxiliary_lm.task_logits(outputs))

    def references(self, data: EvaluationData) -> Sequence[Any]:
        return data.store.column("label")

    def evaluate(self, predictions: Sequence[Any], references: Sequence[Any]) -> Metrics:
        yield from metrics_of_probabilities(predictions, references)


def metrics_of_probabilities(predictions: Sequence[Any], references: Sequence[Any]) -> Metrics:
    likeliest = [row.index(max(row)) for row in predictions]
    yield from classification_metrics(
        likeliest, list(map(int, references)), range(len(predictions[0]))
    )


class RegressionTask(ClassificationTask):
    def predict(self, outputs: Any, batch: Batch) -> list[Any]:
        """The number itself."""
        numbers: list[Any] = auxiliary_lm.task_logits(outputs)[:, 0].double().tolist()
        return numbers

    def evaluate(self, predictions: Sequence[Any], references: Sequence[Any]) -> Metrics:
        yield from regression_metrics(predictions, references)
