"""The validation of a run: at which steps it is due, and the metrics of its sources."""

from statistics import fmean

from ..data.mixture import MixtureStore
from ..tasks.task import EvaluationData
from ..training.averages import BestWeights
from ..training.validation import PredictionCollector, validate
from .log import RunLog
from .run import Run


def validation_pending(run: Run) -> bool:
    """Return whether a stop interrupted the validation of this step."""
    return (
        run.recipe.validates_at(run.trainer.step)
        and run.trainer.last_validated_step < run.trainer.step
    )


def validate_run(run: Run) -> dict[str, float] | None:
    """Return the validation loss, its terms and the task's metrics; None without validation data, or if interrupted. Of a mixture every
    source counts the same."""
    valid = run.prepared.valid
    if valid is None:
        return None
    stores = valid.parts if isinstance(valid, MixtureStore) else {"": valid}
    results = dict[str, dict[str, float]]()
    for (name, store), part in zip(stores.items(), run.recipe.data.parts("valid"), strict=True):
        result = validate_source(run, EvaluationData(store, part.source))
        if result is None:
            return None
        results[name] = result
    validation = mean_over_sources(results)
    run.trainer.last_validated_step = run.trainer.step
    if isinstance(best := run.trainer.average, BestWeights):
        best.update_best(run.trainer.step, validation)
    return validation


def validate_source(run: Run, data: EvaluationData) -> dict[str, float] | None:
    collector = PredictionCollector(run.task, data) if run.recipe.metric else None
    validation = validate(
        run.trainer, run.preprocess, data.store, collector, run.validation_progress
    )
    if validation is None:
        return None
    return validation | (collector.metrics(run.trainer.ranks) if collector else {})


def mean_over_sources(results: dict[str, dict[str, float]]) -> dict[str, float]:
    """Return what one source gave or, of a mixture, the means over its sources and then each source's own, after its name."""
    first, *others = results.values()
    if not others:
        return first
    means = {key: fmean(result[key] for result in results.values()) for key in first}
    return means | {
        f"{name} {key}": value for name, result in results.items() for key, value in result.items()
    }


def log_validation(
    log: RunLog | None, name: str, step: int, metrics: dict[str, float] | None
) -> None:
    if log is not None and metrics is not None:
        log.validation(step, name, metrics)
