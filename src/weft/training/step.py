"""What the loop reports of one step."""

from typing import NamedTuple


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
