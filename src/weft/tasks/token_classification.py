"""Token classification: one tag per word, predicted at its first piece (BERT, arXiv:1810.04805,
section 5.3).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .. import recipe as R
from ..data.shards.store import Store
from ..metrics.entities import outside_tag, tagging_metrics
from ..nn.kernels.cross_entropy import IGNORE_INDEX, cross_entropy
from .base import (
    ArrayRow,
    Batch,
    LengthLimitedSamples,
    Loss,
    Preprocess,
    TaskContext,
    check_head,
    concatenate_ids,
    encode_batch,
    logits_at,
    selected_labels,
)
from .pair_encoding import PairEncoding
from .predict import split_by_row
from .task import EvaluationData, Metrics, TaskImplementation


class TokenClassificationPreprocess(Preprocess):
    """A row is bos tokens eos; special tokens and the further pieces of a word have no label."""

    terms = ("tag",)

    def __init__(self, task: R.TokenClassification, context: TaskContext) -> None:
        check_head(task, context)
        super().__init__(task, context)
        # one text: segments would all be the first
        self.join = PairEncoding(task, context, style="gpt")
        self.fields = {"tokens": ("tokens", self.pad_id), "labels": ("tokens", IGNORE_INDEX)}
        self.frame = self.join.frame

    def read_samples(self, store: Store, length: int, include_partial: bool) -> Any:
        return self.join.table(store, length, "tokens")

    def __call__(
        self, samples: LengthLimitedSamples, index: int, rng: np.random.Generator
    ) -> ArrayRow:
        sample = samples[index]
        tags = sample["tags"][: samples.length - 2]
        return self.join(sample["tokens"], None, samples.length) | {
            "labels": concatenate_ids([IGNORE_INDEX], tags, [IGNORE_INDEX])
        }


class TokenClassificationLoss(Loss):
    def __init__(self, task: R.TokenClassification, context: TaskContext) -> None:
        super().__init__(task, context, {"tag": 1.0})

    def forward_outputs(self, batch: Batch) -> Tensor:
        return logits_at(self.model, encode_batch(self.model, batch), batch["labels_at"])

    def loss_sums(self, answer: Tensor, batch: Batch) -> dict[str, Tensor]:
        return {"tag": cross_entropy(answer, selected_labels(batch))}


class TokenClassificationTask(TaskImplementation):
    preprocess_class = TokenClassificationPreprocess
    loss_class = TokenClassificationLoss

    def predict(self, outputs: Tensor, batch: Batch) -> list[Any]:
        """Return the index and the probability of the tag of each word."""
        probability_T, tag_T = outputs.double().softmax(-1).max(-1)
        return split_by_row(torch.stack((tag_T.double(), probability_T), -1), batch)

    def references(self, data: EvaluationData) -> Sequence[Any]:
        """Return the tags of every word, also of those beyond the length of the row."""
        tags = data.store.column("tags")
        return [row[row != IGNORE_INDEX].tolist() for row in tags]

    def evaluate(self, predictions: Sequence[Any], references: Sequence[Any]) -> Metrics:
        labels = self.context.data.labels or ()
        predicted = [
            pad_tags([labels[int(tag)] for tag, _ in row], len(right), labels)
            for row, right in zip(predictions, references, strict=True)
        ]
        yield from tagging_metrics(predicted, [[labels[tag] for tag in row] for row in references])


def pad_tags(tags: list[str], words: int, labels: Sequence[str]) -> list[str]:
    """Return one tag per word; words that do not fit into the row are tagged as outside."""
    return tags + [outside_tag(labels)] * (words - len(tags))
