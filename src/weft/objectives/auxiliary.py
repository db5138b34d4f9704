"""GPT's auxiliary objective: beside its task, a decoder goes on predicting each next token of its input, L3 = L2 + λ · L1 (Radford et al.
2018, section 3.2). The language modelling head is the tied token table; nothing is added to the model."""
from typing import Any, NamedTuple

import torch.nn.functional as F
from torch import Tensor

from ..count import table_width
from ..layers.sequence import Sequence
from ..model.model import Model
from .base import IGNORE, Setting, cross_entropy

TERM = "token"


class Joint(NamedTuple):
    """The task's scores, and the summed cross entropy of the next tokens."""
    logits_BV: Tensor
    token: Tensor


def refuse(value: Any, setting: Setting) -> None:
    s = setting.spec
    if value.lm_weight and (s.decoder is None or s.encoder is not None or table_width(s) != s.width):
        raise ValueError(f"lm_weight = {value.lm_weight}: only a decoder alone predicts next tokens from its own token table; use 0")


def terms(value: Any, task: str) -> tuple[str, ...]:
    return (task, TERM) if value.lm_weight else (task,)


def weights(value: Any, task: str) -> dict[str, float]:
    return {task: 1.0} | ({TERM: value.lm_weight} if value.lm_weight else {})


def next_tokens(model: Model, sequence: Sequence, tokens_BL: Tensor) -> Tensor:
    """The sum over all tokens but each row's first, padding left out."""
    label_BL = tokens_BL[:, 1:]
    if sequence.keep_BL is not None:
        label_BL = label_BL.masked_fill(sequence.keep_BL[:, 1:] == 0, IGNORE)
    logits_BLV = F.linear(sequence.x_BLD[:, :-1], model.table_VD)
    return cross_entropy(logits_BLV.flatten(0, 1), label_BL.flatten())


def count(tokens: Any, keep: Any) -> int:
    """How many tokens `next_tokens` predicts in a batch."""
    return int((keep[:, 1:] != 0).sum()) if keep is not None else len(tokens) * (tokens.shape[1] - 1)


def with_next(logits_BV: Tensor, model: Model, sequence: Sequence, tokens_BL: Tensor, value: Any) -> Tensor | Joint:
    return Joint(logits_BV, next_tokens(model, sequence, tokens_BL)) if value.lm_weight else logits_BV


def scores_of(answer: Any) -> Tensor:
    """The task's scores alone."""
    found: Tensor = answer.logits_BV if isinstance(answer, Joint) else answer
    return found


def also(answer: Any) -> dict[str, Tensor]:
    return {TERM: answer.token} if isinstance(answer, Joint) else {}
