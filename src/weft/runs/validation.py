"""The validation of a run: its schedule and the metrics per source."""

from collections.abc import Iterator
from statistics import fmean

from ..data.batches.batching import build_planner
from ..data.batches.loader import Loader, RankBatch
from ..data.batches.mixture import MixtureStore
from ..tasks.base import LengthLimitedSamples
from ..tasks.task import EvaluationData
from ..training.averages import BestWeights
from ..training.validation import PredictionCollector, validate, with_progress
from .logs.log import RunLog
from .run import Run


def validation_pending(run: Run) -> bool:
    """Return whether a stop interrupted the validation of this step."""
    return (
        run.recipe.validates_at(run.trainer.step)
        and run.trainer.last_validated_step < run.trainer.step
    )


def validate_run(run: Run) -> dict[str, float] | None:
    """Return the validation loss, its terms and the task's metrics; None without validation data
    or after an interruption. The sources of a mixture have equal weight.
    """
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
    samples = run.preprocess.open_samples(data.store, run.recipe.batch.length, include_partial=True)
    collector = PredictionCollector(run.task, data) if run.recipe.metric else None
    if collector is not None:
        samples = collector.order_samples(samples)
    validation = validate(run.trainer, validation_works(run, samples), collector)
    if validation is None:
        return None
    return validation | (collector.metrics(run.trainer.ranks) if collector else {})


def validation_works(run: Run, samples: LengthLimitedSamples) -> Iterator[RankBatch]:
    """Yield each sample of this rank once, and report the progress of validation."""
    recipe = run.recipe
    ranks = run.trainer.ranks
    planner = build_planner(recipe.batch, samples, recipe.seed)
    loader = Loader(planner, samples, run.preprocess, recipe.seed, ranks.rank, ranks.size)
    rows = recipe.micro_batch_size or -(-recipe.batch.rows_per_step() // ranks.size)
    works = loader.one_epoch(rows)
    return with_progress(works, len(samples), ranks.size, run.validation_progress)


def mean_over_sources(results: dict[str, dict[str, float]]) -> dict[str, float]:
    """Return the metrics of a single source; for a mixture, the means over the sources followed by
    each source's metrics, prefixed with its name.
    """
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
