"""Learning-rate schedules: pure functions of the step, without state to save."""

from dataclasses import dataclass
from math import ceil, cos, pi

from ..spec import NonNegativeInt, PositiveFraction, PositiveInt, Probability
from ..support.registry import choice


class Schedule:
    """Base of learning-rate schedules."""

    def scale(self, step: int, steps: int) -> float:
        """Return the factor of the peak learning rate for the next update.

        Args:
            step: the number of finished updates, from 0.
            steps: the number of updates of the whole run.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method scale(step, steps)")


def decay_to(end: float, start: int, step: int, steps: int) -> float:
    """Return the factor at `step` on a line from 1 at step `start` to `end` at the last step."""
    done = max(step - start, 0) / max(steps - start, 1)
    return end + (1 - end) * (1 - done)


@choice
class ConstantSchedule(Schedule):
    """Linear warmup, then the peak learning rate until the end.

    Args:
        warmup_steps: the steps of warmup (default: 0).
    """

    warmup_steps: NonNegativeInt = 0

    def scale(self, step: int, steps: int) -> float:
        return (step + 1) / self.warmup_steps if step < self.warmup_steps else 1.0


@choice
class LinearSchedule(Schedule):
    """Linear warmup, then linear decay (BERT).

    Args:
        warmup_steps: the steps of warmup (default: 0).
        final_fraction: the fraction of the peak at the last step (default: 0).
    """

    warmup_steps: NonNegativeInt = 0
    final_fraction: Probability = 0.0

    def scale(self, step: int, steps: int) -> float:
        if step < self.warmup_steps:
            return (step + 1) / self.warmup_steps
        return decay_to(self.final_fraction, self.warmup_steps, step, steps)


@choice
class CosineSchedule(Schedule):
    """Linear warmup, then half a cosine (Loshchilov and Hutter 2016, arXiv:1608.03983).

    Args:
        warmup_steps: the steps of warmup (default: 0).
        final_fraction: the fraction of the peak at the last step (default: 0).
    """

    warmup_steps: NonNegativeInt = 0
    final_fraction: Probability = 0.0

    def scale(self, step: int, steps: int) -> float:
        if step < self.warmup_steps:
            return (step + 1) / self.warmup_steps
        done = max(step - self.warmup_steps, 0) / max(steps - self.warmup_steps, 1)
        return self.final_fraction + (1 - self.final_fraction) * ((1 + cos(pi * done)) / 2)


@choice
class InverseSqrt(Schedule):
    """Linear warmup, then decay with the inverse square root of the step (Vaswani et al. 2017,
    section 5.3).

    Args:
        warmup_steps: the steps of warmup (default: 4000).
    """

    warmup_steps: PositiveInt = 4000

    def scale(self, step: int, steps: int) -> float:
        if step < self.warmup_steps:
            return (step + 1) / self.warmup_steps
        return float((self.warmup_steps / (step + 1)) ** 0.5)


@choice
class WarmupStableDecay(Schedule):
    """Linear warmup, a constant rate, then linear decay (Hu et al. 2024, arXiv:2404.06395).

    Args:
        warmup_steps: the steps of warmup (default: 0).
        decay_fraction: the fraction of the steps that decay (default: 0.2).
        final_fraction: the fraction of the peak at the last step (default: 0).
    """

    warmup_steps: NonNegativeInt = 0
    decay_fraction: PositiveFraction = 0.2
    final_fraction: Probability = 0.0

    def scale(self, step: int, steps: int) -> float:
        if step < self.warmup_steps:
            return (step + 1) / self.warmup_steps
        begin = max(self.warmup_steps, steps - ceil(self.decay_fraction * steps))
        return decay_to(self.final_fraction, begin, step, steps)


@dataclass(frozen=True)
class TrainingSchedule:
    """The learning rate and row length of each step, counted from 0.

    Attributes:
        steps: the number of updates of the run.
        learning_rate: the learning-rate schedule.
        phases: pairs of a fraction of the steps and the row length until then, in order; the last
            fraction is 1.
    """

    steps: int
    learning_rate: Schedule
    phases: tuple[tuple[float, int], ...]

    def lr_scale(self, step: int) -> float:
        """Return the factor of the peak learning rate."""
        return self.learning_rate.scale(step, self.steps)

    def row_length(self, step: int) -> int:
        """Return the row length in tokens; after the last step, that of the last step."""
        lengths = (length for end, length in self.phases if step < ceil(end * self.steps))
        return next(lengths, self.phases[-1][1])


def noam_lr(width: int, warmup: int) -> float:
    """Return the peak of width ** -0.5 * min(step ** -0.5, step * warmup ** -1.5).

    Args:
        width: the model width.
        warmup: the steps of warmup.
    """
    return float((width * warmup) ** -0.5)
