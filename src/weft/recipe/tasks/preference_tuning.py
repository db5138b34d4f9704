"""Preference tuning."""

from ...spec import PositiveFloat
from ...support.registry import choice, implements
from ..data.conversations import Preferences
from .task import LossWeight, Task


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
