"""The base class of task implementations: preprocessing, loss, prediction and evaluation for one
model and one kind of data.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from .. import recipe as R
from ..data.preparing.drop_table import PieceReader
from ..data.reading.rows import check_rows, load_source
from ..data.reading.source import resolve_source
from ..data.shards.store import DataInfo, Store
from ..metrics.perplexity import perplexity
from ..nn.loaded_model import LoadedModel
from ..support.registry import implementation
from . import base
from .base import Batch, LengthLimitedSamples, Loss, Preprocess, TaskContext
from .predict import PredictOptions, default_row_length, device_of, predict_all, token_losses

Metrics = Iterator[tuple[str, float | str]]


class EvaluationData(NamedTuple):
    """Prepared data or rows in memory, and the source files of their text."""

    store: Store
    source: R.Source | None

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of the store with their text, without rows that were skipped during
        preparation.
        """
        if self.source is None:
            raise ValueError(
                "this metric needs the text, but the prepared data hold only tokens; give the "
                "files with --data"
            )
        row = self.store.meta.rows
        source = resolve_source(self.source, row)
        split = self.store.folder.location / self.store.split if source.filters else Path()
        rows = load_source(source, row.columns, PieceReader(source, row, split))[0]
        return [
            item.fields for item in check_rows(rows, row, self.store.meta.labels, source.format)[0]
        ]


class EvaluateOptions(NamedTuple):
    """Options of `weft evaluate`."""

    predict: PredictOptions = PredictOptions()
    length: int | None = None  # of rows; None: as in training
    stride: int | None = None  # of windows of running text; None: half the length
    num_beams: int = 4
    length_penalty: float = 0.6
    language: str | None = (
        None  # of the target, for tokenised BLEU; None: from the name of the file
    )
    no_answer_threshold: float = 0.0  # score of no answer above that of the best span


class TaskImplementation:
    """Base class of task implementations.

    A subclass names its `preprocess_class` (numpy, pure) and its `loss_class` (torch, sums), turns
    outputs into plain predictions, and yields the metrics of predictions and references. Validation
    during training, `weft evaluate` and the methods of an opened model call the same methods.
    """

    preprocess_class: type[Any]  # (value, context) -> Preprocess
    loss_class: type[Any]  # (value, context) -> Loss

    def __init__(self, task: Any, context: TaskContext) -> None:
        base.check_rows(task, context)
        self.task = task
        self.context = context
        self.preprocess: Preprocess = self.preprocess_class(task, context)
        self.loss: Loss = self.loss_class(task, context)

    def predict(self, outputs: Any, batch: Batch) -> list[Any]:
        """Return one plain value per row of a batch, serialisable as JSON."""
        raise NotImplementedError

    def references(self, data: EvaluationData) -> Sequence[Any]:
        """Return the references, one per sample; empty if predictions are scores."""
        return ()

    def evaluate(self, predictions: Sequence[Any], references: Sequence[Any]) -> Metrics:
        """Yield (name, value) for all predictions, in the order of the samples."""
        raise NotImplementedError

    # Around a trained model

    def samples(
        self, store: Store, options: EvaluateOptions
    ) -> tuple[Preprocess, LengthLimitedSamples]:
        """Return every sample of a store once, and its preprocessing."""
        length = options.length or default_row_length(self.loss.model)
        return self.preprocess, self.preprocess.open_samples(store, length, include_partial=True)

    def predict_store(self, store: Store, options: EvaluateOptions) -> list[Any]:
        """Return one prediction per sample of a store, in order, the same on every rank."""
        loss = self.loss.eval()
        device = device_of(self.loss.model)
        return predict_all(
            *self.samples(store, options),
            loss.forward_outputs,
            self.predict,
            device,
            options.predict,
        )

    def evaluate_model(
        self, opened: Any, data: EvaluationData, options: EvaluateOptions
    ) -> Metrics:
        """Yield (name, value) as `weft evaluate` prints them, the same on every rank."""
        yield from self.evaluate(self.predict_store(data.store, options), self.references(data))


class HiddenTokenTask(TaskImplementation):
    """A task that predicts tokens: the loss of each, and whether it is the most likely one."""

    def predict(self, outputs: Any, batch: Batch) -> list[Any]:
        return token_losses(outputs, batch)

    def evaluate(self, predictions: Sequence[Any], references: Sequence[Any]) -> Metrics:
        tokens = [token for row in predictions for token in row]
        yield "accuracy of hidden tokens", sum(hit for _, hit in tokens) / len(tokens)
        yield from perplexity([loss for loss, _ in tokens])


def task_for_model(
    opened: LoadedModel, task: R.Task, info: DataInfo, seed: int = 0
) -> TaskImplementation:
    """Build a task around a trained model.

    Raises:
        ValueError: if the task makes no predictions.
    """
    task = task.for_inference(info.rows)
    kind: type[TaskImplementation] = implementation(task)
    if kind.predict is TaskImplementation.predict:
        raise ValueError(
            f"{opened.name} was trained with {type(task).__name__}, which makes no predictions; "
            f"see log.jsonl for its loss, or fine-tune the model with weft tune and evaluate the "
            f"result"
        )
    return kind(task, TaskContext(opened.model.spec, info, seed, model=opened.model))


def predict(
    opened: LoadedModel,
    value: R.Task,
    store: Store,
    *,
    length: int | None = None,
    stride: int | None = None,
    options: PredictOptions = PredictOptions(),
) -> list[Any]:
    """Return one plain prediction per sample of `store`.

    Args:
        opened: a trained model with its tokenizer.
        value: the task.
        store: the samples.
        length: of rows, in tokens (default: as much as the model reads).
        stride: between overlapping windows of running text; each token is scored once.
        options: the batch size, the precision and the ranks.
    """
    task = task_for_model(opened, value, store.meta, options.seed)
    return task.predict_store(store, EvaluateOptions(options, length, stride))
