"""Multiple choice: one score per ending, softmax over the endings (BERT, arXiv:1810.04805, section
4.4; GPT, Radford et al. 2018, section 3.3).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from .. import recipe as R
from ..data.batches.collate import attention_mask
from ..data.shards.store import Store
from ..metrics.classification import multiple_choice_accuracy
from ..nn.kernels.cross_entropy import cross_entropy
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
)
from .pair_encoding import PairEncoding
from .predict import probabilities
from .task import EvaluationData, Metrics, TaskImplementation


class MultipleChoicePreprocess(Preprocess):
    """Each ending is appended to the context in a separate sequence."""

    def __init__(self, task: R.MultipleChoice, context: TaskContext) -> None:
        check_head(task, context, outputs=1)
        assert isinstance(context.data.rows, R.ChoiceQuestions)
        if len(context.data.rows.endings) < 2:
            raise ValueError(
                "MultipleChoice needs at least two ending columns; give "
                "ChoiceQuestions(endings=…) two or more, not {context.data.rows.endings}"
            )
        auxiliary_lm.check_lm_weight(task, context)
        super().__init__(task, context)
        self.terms = auxiliary_lm.loss_terms(task, "choice")
        self.join = PairEncoding(task, context, task.input_format)
        self.endings = len(context.data.rows.endings)
        self.fields = {}
        self.frame = self.join.frame
        for i in range(self.endings):
            self.fields |= self.join.fields(
                self.pad_id, f"ending{i}", tokens=f"tokens{i}", segments=f"segments{i}"
            )

    def read_samples(self, store: Store, length: int, include_partial: bool) -> Any:
        return self.join.table(store, length, "context", "endings")

    def __call__(
        self, samples: LengthLimitedSamples, index: int, rng: np.random.Generator
    ) -> ArrayRow:
        sample = samples[index]
        row = {"labels": np.asarray(sample["label"])}
        for i, ending in enumerate(sample["endings"]):
            row |= {
                f"{name}{i}": array
                for name, array in self.join(sample["context"], ending, samples.length).items()
            }
        return row

    def loss_counts(self, batch: Any) -> dict[str, int]:
        counts = super().loss_counts(batch)
        if auxiliary_lm.LM_TERM in self.terms:
            counts[auxiliary_lm.LM_TERM] = sum(
                auxiliary_lm.count_next_tokens(
                    batch[f"tokens{i}"], attention_mask(batch, f"ending{i}")
                )
                for i in range(self.endings)
            )
        return counts


class MultipleChoiceLoss(Loss):
    def __init__(self, task: R.MultipleChoice, context: TaskContext) -> None:
        super().__init__(task, context, auxiliary_lm.loss_weights(task, "choice"))
        assert isinstance(context.data.rows, R.ChoiceQuestions)
        self.endings = len(context.data.rows.endings)

    def forward_outputs(self, batch: Batch) -> Tensor | auxiliary_lm.TaskAndLMOutputs:
        inputs = self.flatten_endings(batch)
        sequence = encode_batch(self.model, inputs)
        logits_T1 = self.model.read(sequence)
        assert isinstance(logits_T1, Tensor)
        return auxiliary_lm.with_lm_loss(
            logits_T1.view(-1, self.endings), self.model, sequence, inputs["tokens"], self.task
        )

    def flatten_endings(self, batch: Batch) -> Batch:
        """Return all endings as rows of one batch, grouped by sample: (B * endings, L)."""
        streams = range(self.endings)
        length = max(batch[f"tokens{i}"].shape[1] for i in streams)

        def rows(each: list[Tensor]) -> Tensor:
            return torch.stack(
                [F.pad(x_BL, (0, length - x_BL.shape[1])) for x_BL in each], 1
            ).flatten(0, 1)

        masks = [
            torch.ones_like(batch[f"tokens{i}"], dtype=torch.bool) if mask is None else mask
            for i, mask in enumerate(attention_mask(batch, f"ending{i}") for i in streams)
        ]
        flat_batch = {
            "tokens": rows([batch[f"tokens{i}"] for i in streams]),
            "tokens_attention_mask": rows(masks),
        }
        return flat_batch | (
            {"segments": rows([batch[f"segments{i}"] for i in streams])}
            if "segments0" in batch
            else {}
        )

    def loss_sums(
        self, answer: Tensor | auxiliary_lm.TaskAndLMOutputs, batch: Batch
    ) -> dict[str, Tensor]:
        return {
            "choice": cross_entropy(auxiliary_lm.task_logits(answer), batch["labels"])
        } | auxiliary_lm.lm_term(answer)


class MultipleChoiceTask(TaskImplementation):
    preprocess_class = MultipleChoicePreprocess
    loss_class = MultipleChoiceLoss

    def predict(self, outputs: Any, batch: Batch) -> list[Any]:
        """Return the probability of each ending."""
        return probabilities(auxiliary_lm.task_logits(outputs))

    def references(self, data: EvaluationData) -> Sequence[Any]:
        return data.store.column("label")

    def evaluate(self, predictions: Sequence[Any], references: Sequence[Any]) -> Metrics:
        yield from multiple_choice_accuracy(predictions, references)
