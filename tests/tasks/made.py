"""Small samples in memory, their metadata, and batches of rows."""

from typing import Any

import numpy as np
import torch

from weft import recipe as R
from weft.data.batches.collate import collate
from weft.data.batches.loader import to_torch
from weft.data.shards.store import DataInfo
from weft.support.order import sample_generator
from weft.tasks import build_task
from weft.tasks.base import ArrayRow, Batch, LengthLimitedSamples, Loss, Preprocess

SPECIAL = {"pad": 0, "unk": 1, "bos": 2, "eos": 3, "mask": 4}
VOCABULARY = 60
SENTINELS = (59, 58, 57, 56, 55, 54, 53, 52)
ORDINARY = range(5, 52)


def build_pair(*args: Any, **options: Any) -> tuple[Preprocess, Loss]:
    """A task's preprocessing and loss."""
    task = build_task(*args, **options)
    return task.preprocess, task.loss


class Given:
    """Samples that are there already."""

    def __init__(self, samples: list[dict[str, Any]]) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.samples[index]

    def lengths(self, indices: np.ndarray) -> np.ndarray:
        return np.array([sum(np.size(v) for v in self.samples[int(i)].values()) for i in indices])


class Stream:
    """A store in memory: running text with its documents and sentences."""

    def __init__(self, sample: dict[str, Any]) -> None:
        self.held = sample
        self.tokens = len(sample["tokens"])

    def stream(self, start: int, stop: int) -> np.ndarray:
        return self.held["tokens"][start:stop]

    def documents(self, start: int, stop: int, column: str = "documents") -> np.ndarray:
        found = self.held[column].astype(np.int64)
        return found[(found >= start) & (found < stop)]

    def sentences(self, start: int, stop: int) -> np.ndarray:
        return self.documents(start, stop, "sentences")


def meta(row: R.RowSchema, **more: Any) -> DataInfo:
    facts: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "special_tokens": SPECIAL,
        "sentinels": SENTINELS,
        "labels": None,
        "is_continuation": np.isin(np.arange(VOCABULARY), range(40, 52)),
    }
    return DataInfo(rows=row, **{**facts, **more})


def text(
    generator: np.random.Generator, size: int, document: int = 25, sentence: int = 6
) -> dict[str, Any]:
    """Running text: sentences and documents of random lengths about these; a document ends with the
    end token.
    """
    tokens = generator.choice(ORDINARY, size).astype(np.uint16)
    sentences, documents = (
        np.flatnonzero(generator.random(size) < 1 / mean) for mean in (sentence, document)
    )
    documents = documents[np.diff(documents, prepend=0) > 1]
    tokens[documents - 1] = SPECIAL["eos"]
    sentences = sentences[tokens[sentences] != SPECIAL["eos"]]
    return {
        "tokens": tokens,
        "documents": documents,
        "sentences": np.union1d(np.union1d([0], documents), sentences).astype(np.uint32),
    }


def texts(count: int, size: int, length: int, seed: int = 0, **more: int) -> LengthLimitedSamples:
    generator = np.random.default_rng(seed)
    return LengthLimitedSamples(
        Given([text(generator, size, **more) for _ in range(count)]), length
    )


def pairs(count: int, size: int, length: int, seed: int = 0) -> LengthLimitedSamples:
    generator = np.random.default_rng(seed)
    return LengthLimitedSamples(
        Given(
            [
                {
                    side: generator.choice(ORDINARY, generator.integers(1, size))
                    for side in ("source", "target")
                }
                for _ in range(count)
            ]
        ),
        length,
    )


def rows(
    corruption: Preprocess, samples: LengthLimitedSamples, seed: int = 0, epoch: int = 0
) -> list[ArrayRow]:
    return [corruption(samples, i, sample_generator(seed, epoch, i)) for i in range(len(samples))]


def batch(corruption: Preprocess, rows: list[ArrayRow]) -> Batch:
    return to_torch(collate(rows, corruption.fields))


def sure(labels_T: torch.Tensor, width: int) -> torch.Tensor:
    """Scores that leave no doubt about these labels."""
    return torch.nn.functional.one_hot(labels_T, width).double() * 1e4


def near(count: float, n: int, share: float) -> bool:
    """Within five deviations of what n coins of this share give."""
    return bool(abs(count - n * share) <= 5 * (n * share * (1 - share)) ** 0.5)


def even(counts: np.ndarray) -> bool:
    """As n throws of a fair die: every side within five deviations, and so is chi-square."""
    n = int(counts.sum())
    sides = len(counts)
    off = (counts - n / sides) ** 2 / (n / sides)
    return all(near(c, n, 1 / sides) for c in counts) and bool(
        abs(off.sum() - (sides - 1)) <= 5 * (2 * (sides - 1)) ** 0.5
    )


def loss(objective: Loss, corruption: Preprocess, batches: list[Batch]) -> torch.Tensor:
    """The loss of a step over all its micro-batches, with its gradients."""
    counts = [corruption.loss_counts(each) for each in batches]
    total = {term: sum(each[term] for each in counts) for term in counts[0]}
    objective.zero_grad()
    whole = torch.zeros((), dtype=torch.float64)
    for each in batches:
        part = sum(
            objective.weights[term] * value / max(total[term], 1)
            for term, value in objective(each).items()
        )
        part.backward()
        whole += part.detach()
    return whole


def gradients(objective: Loss) -> dict[str, torch.Tensor]:
    return {
        name: torch.zeros_like(p) if p.grad is None else p.grad.clone()
        for name, p in objective.named_parameters()
        if p.requires_grad
    }
