"""Predictions of a model: one plain value per sample, on any number of ranks. `weft evaluate` and
the inference commands use it.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..data.batches.batching import FixedPlanner
from ..data.batches.loader import Loader
from ..data.shards.store import Store
from ..generate.text_generator import Progress
from ..metrics.perplexity import evaluation_windows
from ..nn.model import Model
from ..spec.spec import max_row_length
from ..support.order import Order
from ..support.ranks import Ranks
from .base import Batch, LengthLimitedSamples, Preprocess, selected_labels

DEFAULT_LENGTH = 512  # tokens per row without a recipe or a position table


class PredictOptions(NamedTuple):
    """How predictions are computed. Only `seed` may change them, where preprocessing is random."""

    batch_size: int = 32  # rows per forward pass
    bf16: bool = False
    seed: int = 0
    ranks: Ranks = Ranks()
    progress: Progress | None = None  # called with (rows done, all rows) after each batch


# (outputs, batch) -> one plain value per row, for JSON
Plain = Callable[[Any, Batch], list[Any]]


# Every sample once


class SortedByLength(LengthLimitedSamples):
    """The same samples, the longest first, so that samples of similar length share a batch."""

    def __init__(self, inner: LengthLimitedSamples) -> None:
        lengths = inner.lengths(np.arange(len(inner)))
        self.inner = inner
        self.samples = inner.samples
        self.length = inner.length
        self.order = (-lengths).argsort(kind="stable")

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.inner[int(self.order[index])]

    def lengths(self, indices: np.ndarray) -> np.ndarray:
        return self.inner.lengths(self.order[indices])


def predict_batches(
    preprocess: Preprocess,
    samples: LengthLimitedSamples,
    answer: Callable[[Batch], Any],
    device: torch.device,
    options: PredictOptions = PredictOptions(),
) -> Iterator[tuple[list[int], Batch, Any]]:
    """Yield the indices of some samples of this rank, their batch and the outputs of the model."""
    loader = Loader(
        FixedPlanner(Order(len(samples), options.seed), options.batch_size),
        samples,
        preprocess,
        options.seed,
        options.ranks.rank,
        options.ranks.size,
    )
    with (
        torch.inference_mode(),
        torch.autocast(device.type, torch.bfloat16) if options.bf16 else nullcontext(),
    ):
        for work in loader.one_epoch(options.batch_size):
            if work.weight:
                (batch,) = (
                    {name: tensor.to(device) for name, tensor in batch.items()}
                    for batch in work.batches
                )
                yield [pick.index for (pick,) in work.step.rows], batch, answer(batch)


def predict_all(
    preprocess: Preprocess,
    samples: LengthLimitedSamples,
    answer: Callable[[Batch], Any],
    plain: Plain,
    device: torch.device,
    options: PredictOptions = PredictOptions(),
) -> list[Any]:
    """Return one plain prediction per sample, in order, the same on every rank."""
    sorted_ = SortedByLength(samples)
    rank_predictions: list[tuple[int, Any]] = []
    for indices, batch, outputs in predict_batches(preprocess, sorted_, answer, device, options):
        rank_predictions += zip(
            (int(sorted_.order[i]) for i in indices), plain(outputs, batch), strict=True
        )
        if options.progress is not None:
            done = len(rank_predictions) * options.ranks.size
            options.progress(min(done, len(samples)), len(samples))
    every = sorted(gather_predictions(rank_predictions, options.ranks), key=lambda pair: pair[0])
    assert [i for i, _ in every] == list(range(len(samples))), "a sample has no prediction, or two"
    return [prediction for _, prediction in every]


def gather_predictions(
    rank_predictions: list[tuple[int, Any]], ranks: Ranks
) -> list[tuple[int, Any]]:
    """Gather the predictions of all ranks: each writes its bytes into its own range of zeros, and
    the sum holds all.
    """
    if ranks.size == 1:
        return rank_predictions
    encoded = np.frombuffer(json.dumps(rank_predictions).encode(), np.uint8)
    own_size = [0.0] * ranks.size
    own_size[ranks.rank] = float(len(encoded))
    ends = np.cumsum([int(size) for size in ranks.sum(own_size)])
    stretch = np.zeros(ends[-1])
    stretch[ends[ranks.rank] - len(encoded) : ends[ranks.rank]] = encoded
    whole = np.array(ranks.sum(stretch.tolist())).astype(np.uint8)
    return [
        (i, prediction)
        for part in np.split(whole, ends[:-1])
        for i, prediction in json.loads(part.tobytes())
    ]


# Outputs as plain values


def split_by_row(values_T: Tensor, batch: Batch) -> list[Any]:
    """Split values at `labels_at` into one list per row."""
    row_T = (batch["labels_at"] // batch["labels"].shape[1]).cpu()
    return [
        part.tolist()
        for part in values_T.cpu().split(
            torch.bincount(row_T, minlength=len(batch["labels"])).tolist()
        )
    ]


def probabilities(logits_BV: Tensor) -> list[Any]:
    """Return the probability of each class or ending."""
    plain: list[Any] = logits_BV.double().softmax(-1).tolist()
    return plain


def token_losses(answer: Tensor, batch: Batch) -> list[Any]:
    """Return, per row, the loss of each scored token and whether it is the most likely one."""
    logits_TV = answer.float()
    label_T = selected_labels(batch)
    said_T = torch.nn.functional.cross_entropy(logits_TV, label_T, reduction="none")
    return split_by_row(torch.stack((said_T, (logits_TV.argmax(-1) == label_T).float()), -1), batch)


def max_context(model: Model) -> int:
    """Return the maximum number of tokens that a model reads at once."""
    return max_row_length(model.spec) or model.spec.context_length or DEFAULT_LENGTH


def default_row_length(model: Model) -> int:
    """Return the row length for a model without a recipe."""
    return min(max_context(model), DEFAULT_LENGTH)


def device_of(model: Model) -> torch.device:
    return next(model.parameters()).device


# Overlapping windows of running text


class StridedWindows:
    """Overlapping windows, and the position from which their tokens are new."""

    def __init__(self, store: Store, length: int, stride: int) -> None:
        self.store = store
        self.places = list(evaluation_windows(store.tokens, length, stride))

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, i: int) -> dict[str, Any]:
        start, stop, first_scored = self.places[i]
        return {
            "tokens": self.store.stream(start, stop),
            "documents": self.store.documents(start, stop) - start,
            "first_scored": first_scored - start,
        }

    def lengths(self, indices: np.ndarray) -> np.ndarray:
        return np.array([self.places[i][1] - self.places[i][0] for i in indices], np.int64)


class StridedWindowPreprocess(Preprocess):
    """Scores only the tokens of a window that no earlier window has scored."""

    def __init__(self, inner: Preprocess) -> None:
        self.inner = inner
        self.fields = inner.fields
        self.terms = inner.terms

    def __call__(
        self, samples: LengthLimitedSamples, index: int, rng: np.random.Generator
    ) -> dict[str, np.ndarray]:
        row = self.inner(samples, index, rng)
        is_scored = np.arange(1, len(row["labels"]) + 1) >= samples[index]["first_scored"]
        return row | {"labels": np.where(is_scored, row["labels"], -100)}
