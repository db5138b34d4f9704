"""How each step of the loop is computed, and what is reported of it."""

from dataclasses import dataclass
from typing import NamedTuple

from .. import recipe as R


@dataclass(frozen=True)
class StepOptions:
    """How each step is computed: fields of the recipe, which documents them. The precision is not
    "auto".
    """

    schedule: R.TrainingSchedule
    precision: str = "fp32"
    grad_clip: float | None = None
    micro_batch_size: int | None = None
    trainable: R.Trainable | None = None
    guard: R.LossGuard = R.LossGuard()
    seed: int = 0


class TrainStep(NamedTuple):
    """What happened at one step; `step` counts from 1."""

    step: int
    loss: float
    terms: dict[str, float]  # each term's mean
    grad_norm: float  # of the gradient, before clipping
    lr: float
    tokens: int  # over all ranks
    seconds: float
    samples_read: int  # samples read so far in this phase
    skipped_reason: str | None = None  # why the step was not taken
    sample_ids: tuple[tuple[int, int], ...] = ()  # (epoch, index) of every sample
    expert_load: dict[str, float] | None = None  # how evenly the tokens are spread over the experts
    # What validation found after this step, where it was due
    validation: dict[str, float] | None = None
    data_seconds: float = 0.0  # of `seconds`, those that the step waited for its batch
