"""Evaluation of a model on its task."""

from .. import recipe as R
from ..model.loaded_model import LoadedModel
from ..tasks.task import EvaluateOptions, EvaluationData, Metrics, task_for_model
from .methods import row_length


def evaluate_model(
    opened: LoadedModel, task: R.Task, data: EvaluationData, options: EvaluateOptions
) -> Metrics:
    """Yield (name, value), one after another, the same on every rank."""
    options = options._replace(length=options.length or row_length(opened))
    built = task_for_model(opened, task, data.store.meta, options.predict.seed)
    yield from built.evaluate_model(opened, data, options)
