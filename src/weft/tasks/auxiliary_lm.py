"""GPT's auxiliary loss: in fine-tuning, a decoder also predicts each next token of its input, L3 =
L2 + λ · L1 (Radford et al. 2018, section 3.2). The language modelling head is the tied token table;
the model has no new parameters.
"""

from typing import Any, NamedTuple

import torch.nn.functional as F
from torch import Tensor

from ..nn.kernels.cross_entropy import IGNORE_INDEX, cross_entropy
from ..nn.layers.sequence import HiddenStates
from ..nn.model import Model
from .base import TaskContext

LM_TERM = "token"


class TaskAndLMOutputs(NamedTuple):
    """Logits of the task, and the summed cross entropy of the next tokens."""

    logits_BV: Tensor
    token: Tensor


def check_lm_weight(task: Any, context: TaskContext) -> None:
    s = context.spec
    if task.lm_weight and (
        s.decoder is None or s.encoder is not None or s.embedding_dim != s.width
    ):
        raise ValueError(
            f"lm_weight = {task.lm_weight}: the auxiliary loss needs a decoder without an "
            f"encoder and with a token table; use lm_weight=0"
        )


def loss_terms(value: Any, task: str) -> tuple[str, ...]:
    return (task, LM_TERM) if value.lm_weight else (task,)


def loss_weights(value: Any, task: str) -> dict[str, float]:
    return {task: 1.0} | ({LM_TERM: value.lm_weight} if value.lm_weight else {})


def next_token_loss(model: Model, sequence: HiddenStates, tokens_BL: Tensor) -> Tensor:
    """Return the summed cross entropy of all tokens but each row's first, without padding."""
    label_BL = tokens_BL[:, 1:]
    if sequence.attention_mask_BL is not None:
        label_BL = label_BL.masked_fill(~sequence.attention_mask_BL[:, 1:], IGNORE_INDEX)
    logits_BLV = F.linear(sequence.x_BLD[:, :-1], model.token_embedding_VD)
    return cross_entropy(logits_BLV.flatten(0, 1), label_BL.flatten())


def count_next_tokens(tokens: Any, attention_mask: Any) -> int:
    """Return how many tokens `next_token_loss` predicts in a batch."""
    if attention_mask is None:
        attention_mask = tokens >= 0
    return int(attention_mask[:, 1:].sum())


def with_lm_loss(
    logits_BV: Tensor, model: Model, sequence: HiddenStates, tokens_BL: Tensor, task: Any
) -> Tensor | TaskAndLMOutputs:
    return (
        TaskAndLMOutputs(logits_BV, next_token_loss(model, sequence, tokens_BL))
        if task.lm_weight
        else logits_BV
    )


def task_logits(answer: Any) -> Tensor:
    """Return the logits of the task alone."""
    logits: Tensor = answer.logits_BV if isinstance(answer, TaskAndLMOutputs) else answer
    return logits


def lm_term(answer: Any) -> dict[str, Tensor]:
    return {LM_TERM: answer.token} if isinstance(answer, TaskAndLMOutputs) else {}
