"""The loss on data that is not trained on: every sample once, the same corruption each time."""
from typing import Any, Protocol

import torch

from ..cost import rows
from ..data.loader import Loader
from ..data.plan import Step, planner
from ..data.store import Store
from ..objectives.base import Batch, Corruption, Reader
from .loop import Trainer, moved, precision


class Listener(Protocol):
    """Who wants the answers too, in an order of samples of their own."""

    def arrange(self, samples: Reader) -> Reader: ...
    def hear(self, step: Step, answer: Any, batch: Batch) -> None: ...


def validate(trainer: Trainer, corruption: Corruption, store: Store, listener: Listener | None = None) -> dict[str, float] | None:
    """Each term's mean and the weighted loss, over all ranks; None where the run was asked to stop meanwhile."""
    recipe, objective, ranks = trainer.recipe, trainer.objective, trainer.world
    samples = corruption.samples(store, recipe.batch.length, tail=True)
    if listener is not None:
        samples = listener.arrange(samples)
    loader = Loader(planner(recipe.batch, samples, recipe.seed), samples, corruption, recipe.seed, ranks.rank, ranks.size)
    terms = list(objective.weights)
    total = torch.zeros(2, len(terms), dtype=torch.float64)
    objective.eval()
    with torch.no_grad(), precision(recipe.precision, ranks.device):
        for work in loader.once(recipe.micro or -(-rows(recipe) // ranks.size)):
            if trainer.stop and ranks.size == 1:
                return None
            for batch in work.batches if work.share else ():
                batch = moved(batch, ranks.device)
                if listener is None:
                    sums = objective(batch)
                else:
                    answer = objective.answer(batch)
                    listener.hear(work.step, answer, batch)
                    sums = objective.sums(answer, batch)
                total[0] += torch.stack([sums[t].double().cpu() for t in terms])
            total[1] += torch.tensor([float(work.counts[t]) for t in terms], dtype=torch.float64)
    both = ranks.sum(total.flatten().tolist())
    means = {t: both[i] / max(both[len(terms) + i], 1) for i, t in enumerate(terms)}
    return {"loss": sum(objective.weights[t] * mean for t, mean in means.items()), **means}
