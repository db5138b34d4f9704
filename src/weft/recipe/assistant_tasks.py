"""Tasks of assistants: instructions, preferences, and a model of what is preferred."""

from typing import Any, Literal

from ..spec import ClassifierHead, PositiveFloat, Spec
from ..support.registry import choice, implements
from .data.conversations import Conversations, Preferences
from .data.rows import SourceTargetPairs, TemplatedPairs
from .tasks import LossWeight, Task

__all__ = ["InstructionTuning", "PreferenceTuning", "RewardModelling"]


@choice
class InstructionTuning(Task):
    """Predict each next token of an answer, given what was asked: the loss of what the assistant
    says alone (InstructGPT, Ouyang et al. 2022, arXiv:2203.02155, section 3.5; masked as in Wei et
    al. 2021, arXiv:2109.01652).
    """

    name = "instruct"
    row_schemas = (Conversations, SourceTargetPairs, TemplatedPairs)
    hf_class_suffix = "ForCausalLM"
    verb = "generate"


implements(InstructionTuning, "weft.tasks.instruction_tuning:InstructionTuningTask")


@choice
class PreferenceTuning(Task):
    """Raise the likelihood of the preferred answer over the other, each against that under a
    reference model (DPO, Rafailov et al. 2023, arXiv:2305.18290, equation 7).
    """

    name = "prefer"
    row_schemas = (Preferences,)
    hf_class_suffix = "ForCausalLM"
    verb = "generate"
    metrics = ("accuracy",)
    packable = False
    model_folders = ("reference",)

    reference: str  # a model folder; usually what the run starts from
    beta: PositiveFloat = 0.1  # how much the model is held to the reference
    label_smoothing: LossWeight = 0.0  # the share of pairs whose order is wrong (cDPO)

    def sequences_per_row(self) -> int:
        return 2

    def reference_models(self) -> int:
        return 1

    def __post_init__(self) -> None:
        if self.label_smoothing >= 0.5:
            raise ValueError(
                f"label_smoothing = {self.label_smoothing}: with half of the pairs wrong nothing "
                "is preferred; give less than 0.5"
            )


implements(PreferenceTuning, "weft.tasks.preference_tuning:PreferenceTuningTask")


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
