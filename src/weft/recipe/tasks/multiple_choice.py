"""Multiple choice."""

from typing import Literal

from ...support.registry import choice, implements
from ..data.rows import ChoiceQuestions
from .pair_task import PairTask
from .task import LossWeight, TableFacts


@choice
class MultipleChoice(PairTask):
    """Predict which of several endings is right: one score per ending, softmax over the endings."""

    name = "choose"
    row_schemas = (ChoiceQuestions,)
    hf_class_suffix = "ForMultipleChoice"
    verb = None
    metrics = ("accuracy",)

    input_format: Literal["bert", "gpt"] = "bert"
    lm_weight: LossWeight = 0.0

    @classmethod
    def matches(cls, table: TableFacts) -> float:
        return 2.0 if table.endings > 1 else 0.1


implements(MultipleChoice, "weft.tasks.multiple_choice:MultipleChoiceTask")
