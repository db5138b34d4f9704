"""Instruction tuning: learn the answers of conversations (Ouyang et al. 2022, arXiv:2203.02155,
section 3.5).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from .. import recipe as R
from ..data.batches.samples import RowSamples, Samples
from ..data.shards.store import Store
from ..metrics.perplexity import perplexity
from ..nn.kernels.cross_entropy import IGNORE_INDEX
from .base import (
    ArrayRow,
    Batch,
    LengthLimitedSamples,
    Preprocess,
    TaskContext,
    check_model,
    concatenate_ids,
    special_ids,
)
from .causal_lm import CausalLMLoss
from .predict import token_losses
from .task import Metrics, TaskImplementation


class InstructionPreprocess(Preprocess):
    """All tokens are inputs; the tokens of the answers are labels. A pair is one question and one
    answer, followed by the end token.
    """

    def __init__(self, task: R.InstructionTuning, context: TaskContext) -> None:
        check_model(task, context, decoder=True)
        super().__init__(task, context)
        self.pairs = not isinstance(context.data.rows, R.Conversations)
        self.end = special_ids(task, context, "eos") if self.pairs else ()
        self.fields = {"tokens": ("tokens", self.pad_id), "labels": ("tokens", IGNORE_INDEX)}

    def read_samples(self, store: Store, length: int, include_partial: bool) -> Samples:
        if self.pairs:
            return RowSamples(store, ("source", "target"))  # the end token is no input
        return RowSamples(store, ("tokens",), extra_tokens=-1)

    def __call__(
        self, samples: LengthLimitedSamples, index: int, rng: np.random.Generator
    ) -> ArrayRow:
        sample = samples[index]
        if self.pairs:
            tokens = concatenate_ids(sample["source"], sample["target"], self.end)
            spans = np.array([[len(sample["source"]), len(tokens)]])
        else:
            tokens = concatenate_ids(sample["tokens"])
            spans = np.asarray(sample["answers"], np.int64).reshape(-1, 2)
        labels = np.full(len(tokens), IGNORE_INDEX)
        for begin, end in spans:
            labels[begin:end] = tokens[begin:end]
        inputs = tokens[:-1][: samples.length]
        return {"tokens": inputs, "labels": labels[1:][: samples.length]}


class InstructionTuningTask(TaskImplementation):
    preprocess_class = InstructionPreprocess
    loss_class = CausalLMLoss

    def predict(self, outputs: Tensor, batch: Batch) -> list[Any]:
        return token_losses(outputs, batch)

    def evaluate(self, predictions: Sequence[Any], references: Sequence[Any]) -> Metrics:
        """Yield the perplexity of the answers."""
        yield from perplexity([loss for row in predictions for loss, _ in row])
