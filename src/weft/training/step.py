"""Options and results of training steps."""

from dataclasses import dataclass
from typing import NamedTuple

from .. import recipe as R


@dataclass(frozen=True)
class StepOptions:
    """Options of each step: fields of the recipe, where they are documented. The precision is not
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
    """The result of one step; `step` counts from 1."""

    step: int
    loss: float
    terms: dict[str, float]  # mean of each loss term
    grad_norm: float  # before clipping
    lr: float
    tokens: int  # over all ranks
    seconds: float
    samples_read: int  # samples read so far in this phase
    skipped_reason: str | None = None  # why the step was skipped
    sample_ids: tuple[tuple[int, int], ...] = ()  # (epoch, index) of every sample
    expert_load: dict[str, float] | None = None  # how evenly the tokens are spread over the experts
    # Validation metrics after this step, if it was due
    validation: dict[str, float] | None = None
    data_seconds: float = 0.0  # share of `seconds` spent waiting for the batch
