"""Validation: the loss and the task's metrics on held-out data, every sample once, with the same
preprocessing each time.
"""

from collections.abc import Callable, Iterable, Iterator
from math import isnan
from typing import Any

import torch

from ..data.batches.batching import StepPlan
from ..data.batches.loader import RankBatch
from ..tasks.base import Batch, LengthLimitedSamples
from ..tasks.predict import SortedByLength, gather_predictions
from ..tasks.task import EvaluationData, TaskImplementation
from .loop import Trainer, autocast, to_device

Progress = Callable[[int, int], None]  # (validated samples, all samples)


def ignore_progress(done: int, total: int) -> None:
    """Show nothing."""


class PredictionCollector:
    """Collect the predictions of all samples from all ranks, and compute the metrics."""

    def __init__(self, task: TaskImplementation, data: EvaluationData) -> None:
        self.implementation = task
        self.data = data
        self.predictions: list[tuple[int, Any]] = []

    def order_samples(self, samples: LengthLimitedSamples) -> LengthLimitedSamples:
        self.samples = SortedByLength(samples)
        return self.samples

    def add(self, step: StepPlan, outputs: Any, batch: Batch) -> None:
        numbers = (int(self.samples.order[pick.index]) for (pick,) in step.rows)
        self.predictions += zip(numbers, self.implementation.predict(outputs, batch), strict=True)

    def metrics(self, ranks: Any) -> dict[str, float]:
        """Return the metrics that the task names; an undefined correlation counts as 0."""
        every = sorted(gather_predictions(self.predictions, ranks), key=lambda pair: pair[0])
        assert [i for i, _ in every] == list(range(len(self.samples))), (
            "a sample has no prediction, or two"
        )
        predictions = [prediction for _, prediction in every]
        references = self.implementation.references(self.data)
        metrics = self.implementation.task.validation_metrics(self.data.store.meta.rows)
        named = {
            name: float(value)
            for name, value in self.implementation.evaluate(predictions, references)
            if name in metrics
        }
        return {name: 0.0 if isnan(value) else value for name, value in named.items()}


def with_progress(
    works: Iterable[RankBatch], total: int, ranks: int, progress: Progress
) -> Iterator[RankBatch]:
    """Yield the work of each step, and report the number of finished samples on all ranks."""
    done = 0
    progress(done, total)
    for work in works:
        yield work
        done += len(work.step.rows) * ranks
        progress(min(done, total), total)


def validate(
    trainer: Trainer, works: Iterable[RankBatch], collector: PredictionCollector | None = None
) -> dict[str, float] | None:
    """Return the mean of each loss term and the weighted loss, over all ranks; None if the run is
    stopped.

    Args:
        trainer: the trainer with the weights.
        works: this rank's share of all samples.
        collector: receives the predictions.
    """
    loss = trainer.loss
    ranks = trainer.ranks
    terms = list(loss.weights)
    total = torch.zeros(2, len(terms), dtype=torch.float64)
    loss.eval()
    with torch.no_grad(), autocast(trainer.options.precision, ranks.device):
        for work in works:
            if trainer.stop_requested and ranks.world == 1:
                return None
            for batch in work.batches if work.weight or ranks.splits_weights else ():
                batch = to_device(batch, ranks.device)
                if collector is None:
                    sums = loss(batch)
                else:
                    outputs, sums = loss.outputs_and_sums(batch)
                    if work.weight:
                        collector.add(work.step, outputs, batch)
                total[0] += torch.stack([sums[t].cpu().double() for t in terms]) * work.weight
            total[1] += torch.tensor([float(work.counts[t]) for t in terms], dtype=torch.float64)
    both = ranks.sum(total.flatten().tolist())
    means = {t: both[i] / max(both[len(terms) + i], 1) for i, t in enumerate(terms)}
    return {"loss": sum(loss.weights[t] * mean for t, mean in means.items()), **means}
