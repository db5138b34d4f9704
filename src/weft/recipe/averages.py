"""Which weights a run ends with."""

from typing import ClassVar

from ..spec import PositiveInt, Probability
from ..support.registry import choice, implements


class WeightAverage:
    """Base of what chooses the weights at the end of a run, where not the last ones.

    Built with (average, module) into a `train.averages.WeightCopy`, or None where the checkpoints
    hold all it needs.
    """

    holds_weights: ClassVar[bool] = True  # a second copy, in memory and in the checkpoint


@choice
class EMA(WeightAverage):
    """average <- d * average + (1 - d) * weights (Polyak), where d is `decay`, but at most (1 + n)
    / (10 + n) after n steps, as in TensorFlow: the average of a short run forgets its random start.
    """

    decay: Probability = 0.9999


@choice
class AverageLast(WeightAverage):
    """The mean of the last `count` checkpoints (Vaswani et al. 2017, section 6.1)."""

    holds_weights = False
    checkpoints: PositiveInt = 5


@choice
class BestCheckpoint(WeightAverage):
    """Those that did best on the validation data, of all times that they were looked at; of two as
    good, the earlier.
    """

    metric: str = "loss"  # or one of the task's metrics


implements(EMA, "weft.training.averages:ExponentialMovingAverage")
implements(AverageLast, "weft.training.averages:no_copy")
implements(BestCheckpoint, "weft.training.averages:BestWeights")
