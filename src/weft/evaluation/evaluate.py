"""Evaluation of a model on its task, with the task's metrics."""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from .. import recipe as R
from ..data.batches.mixture import MixtureStore
from ..data.preparing.prepare import prepare_for_run
from ..inference.methods import row_length
from ..nn.loaded_model import LoadedModel
from ..support.ranks import Ranks
from ..tasks.task import EvaluateOptions, EvaluationData, Metrics, task_for_model


class MixtureEvaluationData(NamedTuple):
    """A split of a mixture; each source is evaluated separately."""

    store: MixtureStore

    def parts(self, opened: LoadedModel) -> Iterator[tuple[str, LoadedModel, EvaluationData]]:
        """Yield each source's name, the model with this source as its training data (so that it
        writes the source's rows), and the data."""
        assert opened.recipe is not None
        for part in self.store.mixture.sources:
            store = self.store.parts[part.name]
            data = replace(opened.recipe.data, rows=store.meta.rows, train=part.source, valid=None)
            recipe = replace(opened.recipe, data=data, average=None)
            yield part.name, replace(opened, recipe=recipe), EvaluationData(store, part.source)


def data_of_run(
    data: R.Data, split: str, ranks: Ranks = Ranks()
) -> EvaluationData | MixtureEvaluationData:
    """Prepare and open the run's own data, "train" or "valid"."""
    source = getattr(data, split)
    if source is None:
        raise ValueError(f"the run has no {split} data; give files with --data")
    prepared = prepare_for_run(data)
    prepared.check(ranks)
    store = prepared.open(split)
    assert store is not None
    if isinstance(store, MixtureStore):
        return MixtureEvaluationData(store)
    return EvaluationData(store, source)


def evaluate_model(
    opened: LoadedModel,
    task: R.Task,
    data: EvaluationData | MixtureEvaluationData,
    options: EvaluateOptions,
) -> Metrics:
    """Yield (name, value) pairs, the same on every rank; for a mixture, names start with the
    source."""
    if isinstance(data, MixtureEvaluationData):
        for source, model, part in data.parts(opened):
            for name, value in evaluate_model(model, task, part, options):
                yield f"{source} {name}", value
        return
    options = options._replace(length=options.length or row_length(opened))
    built = task_for_model(opened, task, data.store.meta, options.predict.seed)
    yield from built.evaluate_model(opened, data, options)
