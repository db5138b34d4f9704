"""A run built from its recipe: data, task and trainer."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from .. import recipe as R
from ..data.batches.batching import build_planner
from ..data.batches.loader import Loader
from ..data.batches.mixture import MixtureSamples
from ..data.preparing.prepared import PreparedData
from ..data.shards.store import Store
from ..plan.cost import checkpoint_bytes
from ..support.values import flatten_plain, to_plain
from ..tasks import build_task
from ..tasks.base import LengthLimitedSamples, Loss, Preprocess
from ..tasks.task import TaskImplementation
from ..training.averages import build_average
from ..training.checkpoints.parts import state_digest
from ..training.loop import Trainer
from ..training.optimisers.optimiser import Optimiser
from ..training.parallel.exact import ExactTrainer
from ..training.parallel.ranks import DistributedRanks, place_on_ranks, torchrun_notes
from ..training.step import StepOptions
from ..training.trainable import freeze_untrained, initialise_from
from ..training.validation import Progress, ignore_progress
from .teachers import load_frozen_models


class Run:
    """Data, task and trainer built from a recipe. All checks run before the first step.

    Args:
        recipe: the recipe, with the precision that `decide_precision` returns.
        prepared: the prepared data.
        ranks: the ranks of this process, on the recipe's grid.
        is_new: True to initialise the weights; a resumed run reads them from a checkpoint.
    """

    def __init__(
        self,
        recipe: R.Recipe,
        prepared: PreparedData,
        ranks: DistributedRanks,
        is_new: bool = True,
    ) -> None:
        self.recipe = recipe
        self.prepared = prepared
        self.validation_progress: Progress = ignore_progress
        frozen = load_frozen_models(recipe.task)
        self.task: TaskImplementation = build_task(
            recipe.task,
            recipe.model,
            prepared.train.meta,
            seed=recipe.seed,
            teacher=next(iter(frozen.values()), None),
            device="meta" if ranks.splits_weights else "cpu",
        )
        # SHA-256 of the data and of the teacher, which a run may not change
        self.fingerprints = {"data": prepared.fingerprint} | {
            name: state_digest({name: dict(model.state_dict())}) for name, model in frozen.items()
        }
        freeze_untrained(self.loss.model, recipe.trainable, recipe.seed)
        self.check_phases()
        self.trainer = self.build_trainer(ranks, recipe.init_from if is_new else None)

    @property
    def preprocess(self) -> Preprocess:
        return self.task.preprocess

    @property
    def loss(self) -> Loss:
        return self.task.loss

    @property
    def trainer_class(self) -> type[Trainer]:
        """What splits the rows of a step between the ranks and sums their gradients."""
        return ExactTrainer if self.recipe.exact else Trainer

    def build_trainer(self, ranks: DistributedRanks, starts_from: str | None) -> Trainer:
        """Build the trainer. Each rank reads its weights from the model folder `starts_from`, if
        given.
        """
        recipe = self.recipe
        module = place_on_ranks(
            self.loss,
            ranks,
            checkpointing=recipe.activation_checkpointing,
            compile=recipe.compile,
            precision=recipe.precision,
            whole_experts=recipe.parallel.expert > 1,
            seed=recipe.seed,
            average_gradients=self.trainer_class.averages_gradients,
        )
        if starts_from is not None:
            initialise_from(self.loss.model, starts_from)
        return self.trainer_class(
            self.loss,
            module,
            Optimiser(recipe.optimiser, self.loss),
            build_average(recipe.average, self.loss),
            partial(self.open_batches, ranks),
            ranks,
            StepOptions(
                recipe.training_schedule,
                precision=recipe.precision,
                grad_clip=recipe.grad_clip,
                micro_batch_size=recipe.micro_batch_size,
                trainable=recipe.trainable,
                guard=recipe.guard,
                seed=recipe.seed,
            ),
        )

    def open_batches(self, ranks: DistributedRanks, length: int) -> Loader:
        """Open the training batches with rows of one length."""
        recipe = self.recipe
        samples = open_training_samples(self.preprocess, self.prepared, length)
        return Loader(
            build_planner(batch_at_length(recipe.batch, length), samples, recipe.seed, length),
            samples,
            self.preprocess,
            recipe.seed,
            ranks.rank,
            ranks.size,
            recipe.micro_batch_size,
            recipe.workers,
            self.trainer_class.split_rows,
        )

    def check_phases(self) -> None:
        """Raise ValueError if the data is too small for one row of a later phase or validation."""
        recipe = self.recipe
        if recipe.length_schedule:
            for length in {*(length for _, length in recipe.length_schedule), recipe.batch.length}:
                open_training_samples(self.preprocess, self.prepared, length)

    def notes(self) -> Iterator[str]:
        """Yield notes about the data, the ranks and the device."""
        yield from self.prepared.notes()
        yield from torchrun_notes()
        yield from self.trainer.notes()

    def config(self) -> dict[str, Any]:
        """Return the fields of the recipe by path; for the model, which may have thousands of
        fields, only its size.
        """
        fields = flatten_plain(to_plain(self.recipe))
        kept = {name: part for name, part in fields.items() if not name.startswith("model.")}
        return kept | {"parameters": self.recipe.model.parameter_count()}

    def checkpoint_bytes(self) -> int:
        """Return the size of a checkpoint in bytes."""
        parameters = sum(p.numel() for p in self.loss.parameters())
        return checkpoint_bytes(self.recipe.optimiser, self.recipe.average, parameters)


def batch_at_length(batch: R.Batching, length: int) -> R.Batching:
    """Return the batching at another row length with the same number of tokens."""
    return batch if length == batch.length else batch.at_length(length)


def open_training_samples(
    preprocess: Preprocess, prepared: PreparedData, length: int
) -> LengthLimitedSamples | MixtureSamples:
    """Open the training rows of a length; for a mixture, the rows of all sources."""
    store = prepared.train
    if isinstance(store, Store):
        samples = preprocess.open_samples(store, length)
        if len(samples) == 0:
            raise ValueError(
                f"{prepared.folder} has too little text for one row of {length} tokens; "
                "give more text, or a smaller batch.length"
            )
        return samples
    parts = []
    for name, part in store.parts.items():
        try:
            samples = preprocess.open_samples(part, length)
            if len(samples) == 0:
                raise ValueError(
                    f"too little text for one row of {length} tokens; "
                    "give more text, or a smaller batch.length"
                )
        except ValueError as error:
            raise ValueError(f"source {name}: {error}, or remove the source") from None
        parts.append(samples)
    return MixtureSamples(parts, store.mixture.rates)
