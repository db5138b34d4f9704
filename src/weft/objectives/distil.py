"""Learn from a teacher: from its softened scores (Hinton et al. 2015, arXiv:1503.02531, section 2), or from its choice alone
(DeiT, Touvron et al. 2020, arXiv:2012.12877, section 4)."""
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from .. import recipe as R
from .. import spec as S
from ..count import vocabulary
from ..layers.loss import wide
from ..model.head import Classes
from ..model.model import Model
from . import causal, classify
from .base import Batch, Corruption, Objective, Reader, Row, Setting, cross_entropy, labels_at, read_at, room
from .classify import run

if TYPE_CHECKING:
    from ..data.store import Store


class Corrupt(Corruption):
    """The rows of NextToken for documents, else those of Classification."""
    terms = ("label", "teacher")

    def __init__(self, value: R.Distillation, setting: Setting) -> None:
        if isinstance(setting.meta.row, R.Documents):
            self.rows: Corruption = causal.Corrupt(R.NextToken(), setting)
        else:
            self.rows = classify.Corrupt(R.Classification(), setting)
        refuse_teacher(setting)
        assert setting.teacher is not None
        self.fields, self.marks, self.routed = self.rows.fields, self.rows.marks, self.rows.routed
        self.rows.room = min((r for r in (self.rows.room, room(setting.teacher.spec)) if r is not None), default=None)

    def samples(self, store: "Store", length: int, tail: bool = False) -> Reader:
        return self.rows.samples(store, length, tail)

    def __call__(self, samples: Reader, index: int, draw: np.random.Generator) -> Row:
        return self.rows(samples, index, draw)

    def units(self, batch: Any) -> dict[str, int]:
        (units,) = self.rows.units(batch).values()
        return dict.fromkeys(self.terms, units)


def refuse_teacher(setting: Setting) -> None:
    if setting.teacher is None:
        raise ValueError("Distillation needs a teacher; give the folder of a trained model")
    student, teacher = setting.spec, setting.teacher.spec
    if type(teacher.head) is not type(student.head) or isinstance(teacher.source, S.Tokens) != isinstance(student.source, S.Tokens):
        raise ValueError(f"the teacher turns {type(teacher.source).__name__} into {type(teacher.head).__name__}, the student "
                         f"{type(student.source).__name__} into {type(student.head).__name__}; both must do the same")
    if outputs(teacher) != outputs(student):
        raise ValueError(f"the teacher has {outputs(teacher)} outputs, the student {outputs(student)}; give both the same")


def outputs(s: S.Model) -> int:
    return s.head.outputs if isinstance(s.head, S.Classes) else vocabulary(s)


class Score(Objective):
    def __init__(self, value: R.Distillation, setting: Setting) -> None:
        super().__init__(setting, {"label": 1 - value.weight, "teacher": value.weight})
        assert setting.teacher is not None
        self.teacher = (setting.teacher.eval(),)               # in a tuple: no part of what is trained or saved
        self.hard, self.temperature = value.hard, value.temperature

    def answer(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """What learns from labels, what learns from the teacher, and what the teacher says."""
        teacher, device = self.teacher[0], next(iter(batch.values())).device
        if next(teacher.parameters()).device != device:
            teacher.to(device)
        with torch.no_grad():
            taught_TV = logits(teacher, batch)[0]
        own = logits(self.model, batch, apart=True)
        return own[0], own[-1], taught_TV

    def score(self, answer: tuple[Tensor, Tensor, Tensor], batch: Batch) -> dict[str, Tensor]:
        own_TV, copied_TV, taught_TV = answer
        return {"label": cross_entropy(own_TV, labels_at(batch)),
                "teacher": cross_entropy(copied_TV, taught_TV.argmax(-1)) if self.hard else soften(copied_TV, taught_TV, self.temperature)}


def logits(model: Model, batch: Batch, apart: bool = False) -> list[Tensor]:
    """At every label; `apart`, where a model has a distillation token, the class token's and that one's (DeiT, section 4)."""
    sequence, at_T = run(model, batch), batch["labels_at"]
    if not isinstance(model.head, Classes):
        return [read_at(model, sequence, at_T)[:len(at_T)]]
    each = model.head.apart(sequence) if apart and model.head.pool == "tokens" else [model.head(sequence)]
    return [logits_BV[at_T] for logits_BV in each]


def soften(student_TV: Tensor, teacher_TV: Tensor, temperature: float) -> Tensor:
    """T² · KL(teacher ‖ student), both at temperature T: T² keeps the gradient's size as T grows (arXiv:1503.02531, section 2)."""
    student, teacher = ((x_TV.to(wide(student_TV)) / temperature).log_softmax(-1) for x_TV in (student_TV, teacher_TV))
    return F.kl_div(student, teacher, reduction="sum", log_target=True) * temperature ** 2
