"""A run, built: everything that its recipe describes, ready to train."""

from collections.abc import Iterator
from functools import partial

from .. import recipe as R
from ..data.batching import build_planner
from ..data.loader import Loader
from ..data.mixture import MixtureSamples
from ..data.prepared import PreparedData
from ..data.store import Store
from ..interop.loading import load
from ..model.model import Model
from ..recipe.cost import checkpoint_bytes
from ..tasks import build_task
from ..tasks.base import LengthLimitedSamples, Loss, Preprocess
from ..tasks.task import TaskImplementation
from ..training.loop import Trainer, state_digest
from ..training.parallel import DistributedRanks, torchrun_notes
from ..training.trainable import freeze_untrained
from ..training.validation import Progress, ignore_progress
from .teachers import check_teacher_pixels


class Run:
    """A recipe, built: data, task and trainer. Everything is checked before the first step.

    Args:
        recipe: of the run, with the precision that `decide_precision` returns.
        prepared: its data.
        ranks: of this process, on the recipe's grid.
        is_new: whether the weights are initialised; a resumed run takes them from a checkpoint.
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
        # What a run may not change: SHA-256 of its data and of its teacher
        self.fingerprints = {"data": prepared.fingerprint} | {
            name: state_digest({name: dict(model.state_dict())}) for name, model in frozen.items()
        }
        freeze_untrained(self.loss.model, recipe.trainable, recipe.seed)
        self.check_phases()
        open_batches = partial(self.open_batches, ranks)
        starts_from = recipe.init_from if is_new else None
        self.trainer = Trainer(recipe, self.loss, open_batches, ranks, starts_from)

    @property
    def preprocess(self) -> Preprocess:
        return self.task.preprocess

    @property
    def loss(self) -> Loss:
        return self.task.loss

    def open_batches(self, ranks: DistributedRanks, length: int) -> Loader:
        """Open the training batches of rows of one length."""
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
            recipe.exact,
        )

    def check_phases(self) -> None:
        """Raise ValueError if there is too little text for the rows of a phase to come, or of validation."""
        recipe = self.recipe
        if recipe.length_schedule:
            for length in {*(length for _, length in recipe.length_schedule), recipe.batch.length}:
                open_training_samples(self.preprocess, self.prepared, length)

    def notes(self) -> Iterator[str]:
        """Yield lines about the data, the ranks and the device."""
        yield from self.prepared.notes()
        yield from torchrun_notes()
        yield from self.trainer.notes()

    def checkpoint_bytes(self) -> int:
        """Return the size of a checkpoint."""
        parameters = sum(p.numel() for p in self.loss.parameters())
        return checkpoint_bytes(self.recipe.optimiser, self.recipe.average, parameters)


def load_frozen_models(task: R.Task) -> dict[str, Model]:
    """Return the models that a task reads and does not train, such as its teacher, by their field."""
    models = {name: load(getattr(task, name)).eval() for name in task.model_folders}
    for model in models.values():
        check_teacher_pixels(task, model)
    return models


def batch_at_length(batch: R.Batching, length: int) -> R.Batching:
    """Return the batching at another row length with the same number of tokens."""
    return batch if length == batch.length else batch.at_length(length)


def open_training_samples(
    preprocess: Preprocess, prepared: PreparedData, length: int
) -> LengthLimitedSamples | MixtureSamples:
    """Open the training rows of a length, of a mixture those of all its sources."""
    store = prepared.train
    if isinstance(store, Store):
        samples = preprocess.open_samples(store, length)
        if len(samples) == 0:
            raise ValueError(
                f"{prepared.folder} holds too little text for one row of {length} tokens"
            )
        return samples
    parts = []
    for name, part in store.parts.items():
        try:
            samples = preprocess.open_samples(part, length)
            if len(samples) == 0:
                raise ValueError(f"it holds too little text for one row of {length} tokens")
        except ValueError as error:
            raise ValueError(f"source {name}: {error}; give more, or leave it out") from None
        parts.append(samples)
    return MixtureSamples(parts, store.mixture.rates)
