"""Preference tuning: learn which of two answers is preferred, directly (DPO, Rafailov et al. 2023,
arXiv:2305.18290), or with a reward model (Ouyang et al. 2022, arXiv:2203.02155, equation 1).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from .. import recipe as R
from ..data.batches.collate import attention_mask
from ..data.batches.samples import RowSamples, Samples
from ..data.shards.store import Store
from ..nn.kernels.cross_entropy import IGNORE_INDEX, accumulation_dtype
from ..nn.model import Model
from .base import (
    ArrayRow,
    Batch,
    LengthLimitedSamples,
    Loss,
    Preprocess,
    TaskContext,
    check_head,
    check_model,
    concatenate_ids,
    encode_batch,
    logits_at,
)
from .task import Metrics, TaskImplementation

ANSWERS = ("chosen", "rejected")  # streams of a batch, in this order


class PreferencePreprocess(Preprocess):
    """The prompt with each answer. Rows that are too long lose the first tokens of the prompt, the
    same number for both answers, then the end of the answer.
    """

    terms = ("preference",)

    def __init__(self, task: R.PreferenceTuning | R.RewardModelling, context: TaskContext) -> None:
        check_model(task, context, decoder=True, head=task.head)
        super().__init__(task, context)
        self.fields = {}
        for name in ANSWERS:
            self.fields[name] = (name, self.pad_id)
            self.fields[f"labels_{name}"] = (name, IGNORE_INDEX)

    def read_samples(self, store: Store, length: int, include_partial: bool) -> Samples:
        return RowSamples(store, ("prompt", "chosen", "rejected"))

    def __call__(
        self, samples: LengthLimitedSamples, index: int, rng: np.random.Generator
    ) -> ArrayRow:
        sample = samples[index]
        row = {}
        room = max(1, samples.length - max(len(sample[name]) for name in ANSWERS))
        prompt = sample["prompt"][-room:]
        for name in ANSWERS:
            tokens = concatenate_ids(prompt, sample[name])[: samples.length]
            row[name] = tokens
            row[f"labels_{name}"] = tokens.copy()
            row[f"labels_{name}"][: len(prompt)] = IGNORE_INDEX
        return row

    def term_counts(self, batch: Any) -> dict[str, int]:
        return {"preference": len(batch["chosen"])}


def both_answers(batch: Batch) -> Batch:
    """Return both answers as one batch (2 B, L), the preferred one first, padded on the right. The
    rows of a sample are adjacent, as their random numbers require.
    """
    length = max(batch[name].shape[1] for name in ANSWERS)

    def rows(fields: list[Tensor], pad: int = 0) -> Tensor:
        padded = [F.pad(t_BL, (0, length - t_BL.shape[1]), value=pad) for t_BL in fields]
        return torch.stack(padded, 1).flatten(0, 1)

    masks = [
        torch.ones_like(batch[name], dtype=torch.bool) if mask is None else mask
        for name, mask in ((name, attention_mask(batch, name)) for name in ANSWERS)
    ]
    return {
        "tokens": rows([batch[name] for name in ANSWERS]),
        "labels": rows([batch[f"labels_{name}"] for name in ANSWERS], IGNORE_INDEX),
        "tokens_attention_mask": rows(masks),
    }


def answer_log_likelihoods(model: Model, batch: Batch) -> Tensor:
    """Return the log-likelihood of each row's answer given its prompt, (B,)."""
    label_BL = batch["labels"][:, 1:]
    sequence = encode_batch(model, batch)
    sequence = replace(sequence, x_BLD=sequence.x_BLD[:, :-1], attention_mask_BL=None)
    at_T = (label_BL != IGNORE_INDEX).flatten().nonzero()[:, 0]
    logits_TV = logits_at(model, sequence, at_T)[: len(at_T)]
    likelihood_T = -F.cross_entropy(
        logits_TV.to(accumulation_dtype(logits_TV)), label_BL.flatten()[at_T], reduction="none"
    )
    sums_B = likelihood_T.new_zeros(len(label_BL))
    return sums_B.index_add(0, at_T // label_BL.shape[1], likelihood_T)


class PairwiseLoss(Loss):
    """-log σ(margin), where the margin is the score of the preferred answer minus that of the other
    (Bradley and Terry 1952).
    """

    def __init__(self, task: Any, context: TaskContext) -> None:
        super().__init__(task, context, {"preference": 1.0})

    def loss_sums(self, answer: Tensor, batch: Batch) -> dict[str, Tensor]:
        return {"preference": -F.logsigmoid(answer).sum()}


class PreferenceTuningLoss(PairwiseLoss):
    def __init__(self, task: R.PreferenceTuning, context: TaskContext) -> None:
        super().__init__(task, context)
        self.beta = task.beta
        self.smoothing = task.label_smoothing
        reference = context.teacher
        self.reference = () if reference is None else (reference.eval(),)  # not trained or saved

    def forward_outputs(self, batch: Batch) -> Tensor:
        """Return β times the difference of the answers' log-ratios to the reference, (B,)."""
        rows = both_answers(batch)
        gain_B = answer_log_likelihoods(self.model, rows)
        for reference in self.reference:
            if next(reference.parameters()).device != gain_B.device:
                reference.to(gain_B.device)
            with torch.no_grad():
                reference_B = answer_log_likelihoods(reference, rows)
            gain_B = gain_B - reference_B
        chosen_B, rejected_B = gain_B.view(-1, 2).unbind(1)
        return self.beta * (chosen_B - rejected_B)

    def loss_sums(self, answer: Tensor, batch: Batch) -> dict[str, Tensor]:
        right = -F.logsigmoid(answer).sum()
        wrong = -F.logsigmoid(-answer).sum()
        return {"preference": (1 - self.smoothing) * right + self.smoothing * wrong}


class RewardModellingLoss(PairwiseLoss):
    def __init__(self, task: R.RewardModelling, context: TaskContext) -> None:
        check_head(task, context, outputs=1)
        super().__init__(task, context)

    def forward_outputs(self, batch: Batch) -> Tensor:
        """Return the reward of the preferred answer minus that of the other, (B,)."""
        reward_B1 = self.model.read(encode_batch(self.model, both_answers(batch)))
        assert isinstance(reward_B1, Tensor)
        reward_B1 = reward_B1.to(accumulation_dtype(reward_B1))
        chosen_B, rejected_B = reward_B1.view(-1, 2).unbind(1)
        return chosen_B - rejected_B


class PairwiseTask(TaskImplementation):
    preprocess_class = PreferencePreprocess

    def predict(self, outputs: Tensor, batch: Batch) -> list[Any]:
        margins: list[float] = outputs.tolist()
        return margins

    def evaluate(self, predictions: Sequence[Any], references: Sequence[Any]) -> Metrics:
        """Yield the share of pairs with a positive margin, and the mean margin."""
        yield "accuracy", float(np.mean([margin > 0 for margin in predictions]))
        yield "margin", float(np.mean(predictions))


class PreferenceTuningTask(PairwiseTask):
    loss_class = PreferenceTuningLoss


class RewardModellingTask(PairwiseTask):
    loss_class = RewardModellingLoss
