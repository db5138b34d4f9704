"""Weight averaging: the weights at the end of a run."""

from typing import ClassVar

from ..spec import PositiveInt, Probability
from ..support.registry import choice, implements


class WeightAverage:
    """Base of choices for the weights at the end of a run (without one: the last weights).

    Its implementation is built with (average, module) and is a `weft.training.averages.WeightCopy`,
    or None if the checkpoints suffice.
    """

    holds_weights: ClassVar[bool] = True  # a second copy, in memory and in the checkpoint


@choice
class EMA(WeightAverage):
    """Exponential moving average: average <- d * average + (1 - d) * weights (Polyak).

    Args:
        decay: the largest d; after n steps d is at most (1 + n) / (10 + n), as in TensorFlow, so
            that short runs forget their random start (default: 0.9999).
    """

    decay: Probability = 0.9999


@choice
class AverageLast(WeightAverage):
    """The mean of the last checkpoints (Vaswani et al. 2017, section 6.1).

    Args:
        checkpoints: the number of checkpoints (default: 5).
    """

    holds_weights = False
    checkpoints: PositiveInt = 5


@choice
class BestCheckpoint(WeightAverage):
    """The weights with the best validation result; the earlier of two equal ones.

    Args:
        metric: "loss" or a metric of the task (default: "loss").
    """

    metric: str = "loss"


implements(EMA, "weft.training.averages:ExponentialMovingAverage")
implements(AverageLast, "weft.training.averages:no_copy")
implements(BestCheckpoint, "weft.training.averages:BestWeights")
