"""Evaluation of a model on its task."""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from .. import recipe as R
from ..data.mixture import MixtureStore
from ..data.prepared import PreparedData
from ..model.loaded_model import LoadedModel
from ..tasks.task import EvaluateOptions, EvaluationData, Metrics, task_for_model
from .methods import row_length


class MixtureEvaluationData(NamedTuple):
    """A split that is a mixture: each of its sources is evaluated alone."""

    store: MixtureStore

    def parts(self, opened: LoadedModel) -> Iterator[tuple[str, LoadedModel, EvaluationData]]:
        """Yield each source's name, the model as if it had been trained on that source, whose rows it then writes, and the data."""
        assert opened.recipe is not None
        for part in self.store.mixture.sources:
            store = self.store.parts[part.name]
            data = replace(opened.recipe.data, rows=store.meta.rows, train=part.source, valid=None)
            recipe = replace(opened.recipe, data=data, average=None)
            yield part.name, replace(opened, recipe=recipe), EvaluationData(store, part.source)


def split_of_run(
    recipe: R.Recipe, prepared: PreparedData, split: str
) -> EvaluationData | MixtureEvaluationData:
    """Open "train" or "valid" of a run's own data, which the recipe must name."""
    store = prepared.open(split)
    source = getattr(recipe.data, split)
    if store is None:
        raise ValueError(f"the recipe {recipe.name} names no {split} data; give files")
    return (
        MixtureEvaluationData(store)
        if isinstance(store, MixtureStore)
        else EvaluationData(store, source)
    )


def evaluate_model(
    opened: LoadedModel,
    task: R.Task,
    data: EvaluationData | MixtureEvaluationData,
    options: EvaluateOptions,
) -> Metrics:
    """Yield (name, value), one after another, the same on every rank; of a mixture, a source's name leads."""
    if isinstance(data, MixtureEvaluationData):
        for source, model, part in data.parts(opened):
            for name, value in evaluate_model(model, task, part, options):
                yield f"{source} {name}", value
        return
    options = options._replace(length=options.length or row_length(opened))
    built = task_for_model(opened, task, data.store.meta, options.predict.seed)
    yield from built.evaluate_model(opened, data, options)
