"""Predict each next token (Radford et al. 2018, "Improving Language Understanding by Generative
Pre-Training", section 3.1).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from .. import recipe as R
from ..data.batches.samples import RowSamples, Samples, TokenWindows
from ..data.reading.files import MissingFile
from ..data.shards.store import Store
from ..metrics.perplexity import perplexity
from ..nn.kernels.cross_entropy import IGNORE_INDEX
from .base import (
    ArrayRow,
    Batch,
    LengthLimitedSamples,
    Loss,
    Preprocess,
    TaskContext,
    check_model,
    logits_at,
    masks,
)
from .predict import StridedWindowPreprocess, StridedWindows, default_row_length, token_losses
from .task import EvaluateOptions, EvaluationData, Metrics, TaskImplementation


class CausalLMPreprocess(Preprocess):
    """Inputs are all tokens of a window but the last, labels all but the first. This is the only
    place that shifts labels.
    """

    def __init__(self, task: R.CausalLM, context: TaskContext) -> None:
        check_model(task, context, decoder=True)
        super().__init__(task, context)
        self.apart = task.isolate_documents and not task.one_document_per_sample
        self.documents = task.one_document_per_sample
        self.fields = {"tokens": ("tokens", self.pad_id), "labels": ("tokens", IGNORE_INDEX)}
        if self.apart:
            self.fields["tokens_document_ids"] = ("tokens", 0)

    def read_samples(self, store: Store, length: int, include_partial: bool) -> Samples:
        return (
            RowSamples(store, ("tokens",), extra_tokens=-1)
            if self.documents
            else TokenWindows(store, length + 1, length, include_partial)
        )

    def __call__(
        self, samples: LengthLimitedSamples, index: int, rng: np.random.Generator
    ) -> ArrayRow:
        sample = samples[index]
        tokens = np.asarray(sample["tokens"][: samples.length + 1], np.int64)
        inputs = tokens[:-1]
        labels = tokens[1:]
        if not self.apart:
            return {"tokens": inputs, "labels": labels}
        starts = np.zeros(len(tokens), np.int64)
        starts[sample["documents"]] = 1
        starts[0] = 1
        document = starts.cumsum()
        return {
            "tokens": inputs,
            "labels": np.where(starts[1:], IGNORE_INDEX, labels),
            "tokens_document_ids": document[:-1],
        }


class CausalLMLoss(Loss):
    splits_vocabulary = True

    def forward_outputs(self, batch: Batch) -> Tensor:
        sequence = self.model.embed(batch["tokens"], **masks(batch))
        return logits_at(self.model, self.model.decode(sequence), batch["labels_at"])


class CausalLMTask(TaskImplementation):
    preprocess_class = CausalLMPreprocess
    loss_class = CausalLMLoss

    def predict(self, outputs: Tensor, batch: Batch) -> list[Any]:
        return token_losses(outputs, batch)

    def evaluate(self, predictions: Sequence[Any], references: Sequence[Any]) -> Metrics:
        yield from perplexity([loss for row in predictions for loss, _ in row])

    def evaluate_model(
        self, opened: Any, data: EvaluationData, options: EvaluateOptions
    ) -> Metrics:
        """Windows of running text overlap by half, unless a stride is given."""
        length = options.length or default_row_length(opened.model)
        options = options._replace(stride=options.stride or max(1, length // 2))
        predictions = self.predict_store(data.store, options)
        yield from perplexity([loss for row in predictions for loss, _ in row], text_bytes(data))

    def samples(
        self, store: Store, options: EvaluateOptions
    ) -> tuple[Preprocess, LengthLimitedSamples]:
        length = options.length or default_row_length(self.loss.model)
        if self.task.one_document_per_sample or (options.stride or length) >= length:
            return super().samples(store, options)
        assert options.stride is not None
        windows = StridedWindows(store, length, options.stride)
        return StridedWindowPreprocess(self.preprocess), LengthLimitedSamples(windows, length)


def text_bytes(data: EvaluationData) -> int | None:
    """Return the size of the text in UTF-8 bytes; None if it cannot be read."""
    row = data.store.meta.rows
    assert isinstance(row, R.Documents)
    try:
        return sum(len(fields[row.text].encode()) for fields in data.rows())
    except (MissingFile, ValueError):
        return None
