"""Reward modelling."""

from typing import Any, Literal

from ...spec import ClassifierHead, Spec
from ...support.registry import choice, implements
from ..data.conversations import Preferences
from .task import Task


@choice
class RewardModelling(Task):
    """A number per answer, higher for the preferred one: the reward model of RLHF (Ouyang et al.
    2022, arXiv:2203.02155, equation 1).
    """

    name = "reward"
    row_schemas = (Preferences,)
    head = ClassifierHead
    hf_class_suffix = "ForSequenceClassification"
    metrics = ("accuracy",)
    packable = False

    def sequences_per_row(self) -> int:
        return 2

    @classmethod
    def default_head(cls, spec: Spec, labels: tuple[str, ...] | None, dropout: float) -> Any:
        pooling: Literal["last", "cls"] = "last" if spec.encoder is None else "cls"
        return ClassifierHead(num_labels=1, pooling=pooling, dropout=dropout, bias=False)


implements(RewardModelling, "weft.tasks.preference_tuning:RewardModellingTask")
