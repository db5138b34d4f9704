"""Batches, in order, from any position, made here or by workers: the same for any number of
them."""

import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from ...support.order import SampleGenerators
from ...support.processes import delayed_sigterm, die_with_parent, ignore_signals_of_others
from .batching import BatchPlanner, SampleIndex, StepPlan, evaluation_steps, slice_of_rank
from .collate import ArrayRow, RowBuilder, build_batch, count_tokens
from .samples import Samples

Batch = dict[str, Tensor]
Groups = Sequence[Sequence[SampleIndex]]
# (rows of a step, micro_batch_size, rank, ranks) -> the micro-batches of a rank
SplitRows = Callable[[Groups, int | None, int, int], list[Groups]]


class RankBatch(NamedTuple):
    """One rank's part of a step."""

    step: StepPlan  # the whole of it
    batches: list[Batch]  # this rank's micro-batches
    counts: dict[str, int]  # units of each term in them
    tokens: int  # without padding
    # 0: this rank had no row, and runs a dummy sample so that collectives match
    weight: float = 1.0


class MicroBatches(NamedTuple):
    batches: list[Batch]
    counts: dict[str, int]
    tokens: int


class WorkerError(NamedTuple):
    """What went wrong in a worker: the line for the user, and where."""

    line: str
    trace: str


def split_micro_batches(rows: Groups, micro_batch_size: int | None) -> list[Groups]:
    """As few micro-batches as hold `micro` rows at most, their sizes differing by one at most."""
    parts = 1 if micro_batch_size is None else -(-len(rows) // micro_batch_size)
    return [slice_of_rank(rows, part, parts) for part in range(parts)] if rows else []


def split_by_rank(
    rows: Groups, micro_batch_size: int | None, rank: int, ranks: int
) -> list[Groups]:
    """The micro-batches of a rank's own rows."""
    return split_micro_batches(slice_of_rank(rows, rank, ranks), micro_batch_size)


class Loader:
    """Plans here, and makes batches with `workers` processes (0: here)."""

    def __init__(
        self,
        planner: BatchPlanner,
        samples: Samples,
        preprocess: RowBuilder,
        seed: int,
        rank: int = 0,
        ranks: int = 1,
        micro_batch_size: int | None = None,
        workers: int = 0,
        split: SplitRows = split_by_rank,
    ) -> None:
        self.planner = planner
        self.samples = samples
        self.rank = rank
        self.world = ranks
        self.micro_batch_size = micro_batch_size
        self.workers = workers
        self.split = split
        self.maker = BatchDataset(samples, preprocess, SampleGenerators(seed), planner.packed)

    def from_position(self, position: int) -> Iterator[RankBatch]:
        """Without end, from a position in the stream of samples."""
        return self.read(self.planned_steps(position), self.maker)

    def one_epoch(self, rows: int) -> Iterator[RankBatch]:
        """Every sample once, in order, `rows` at a time; the draws are those of the first epoch."""
        steps = evaluation_steps(len(self.samples), rows, self.rank, self.world)
        return self.read(
            ((step, split_micro_batches(step.rows, None)) for step in steps),
            replace(self.maker, packed=None),
        )

    def planned_steps(self, position: int) -> Iterator[tuple[StepPlan, list[Groups]]]:
        """Steps, and this rank's micro-batches of each."""
        while True:
            step = self.planner.at(position)
            yield step, self.split(step.rows, self.micro_batch_size, self.rank, self.world)
            position = step.next_position

    def read(
        self, plan: Iterable[tuple[StepPlan, list[Groups]]], maker: "BatchDataset"
    ) -> Iterator[RankBatch]:
        ahead: deque[tuple[StepPlan, bool]] = deque()  # planned and not yet made

        def ask() -> Iterator[list[Groups]]:
            for step, groups in plan:
                ahead.append((step, bool(groups)))
                yield groups or [[[SampleIndex(0, 0)]]]

        loader = DataLoader(
            maker,
            batch_size=None,
            sampler=ask(),
            num_workers=self.workers,
            collate_fn=identity,
            worker_init_fn=start_worker,
            # Its own: nothing is drawn from torch's
            generator=torch.Generator(),
        )
        for micro_batches in start_workers(loader):
            if isinstance(micro_batches, WorkerError):
                error = ValueError(micro_batches.line)
                error.add_note(micro_batches.trace)
                raise error
            step, has_rows = ahead.popleft()
            yield (
                RankBatch(step, *micro_batches)
                if has_rows
                else RankBatch(
                    step, micro_batches.batches, dict.fromkeys(micro_batches.counts, 0), 0, 0.0
                )
            )


def start_workers(loader: DataLoader[MicroBatches | WorkerError]) -> Iterator[Any]:
    with delayed_sigterm():
        return iter(loader)


@dataclass
class BatchDataset(Dataset[MicroBatches | WorkerError]):
    """Makes what a plan asks for, in whatever process."""

    samples: Samples
    preprocess: RowBuilder
    draws: SampleGenerators
    packed: int | None

    def __getitem__(self, group_lists: list[Groups]) -> MicroBatches | WorkerError:
        try:
            batches = [
                build_batch(self.samples, self.preprocess, groups, self.draws, self.packed)
                for groups in group_lists
            ]
        except ValueError as error:
            return WorkerError(str(error), traceback.format_exc())
        counted = [self.preprocess.loss_counts(batch) for batch in batches]
        counts = {term: sum(count[term] for count in counted) for term in counted[0]}
        return MicroBatches(
            [to_torch(batch) for batch in batches],
            counts,
            sum(count_tokens(batch, self.preprocess.fields) for batch in batches),
        )


def to_torch(batch: ArrayRow) -> Batch:
    """The same memory."""
    return {name: torch.from_numpy(array) for name, array in batch.items()}


def start_worker(_: int) -> None:
    from ...support.user_code import load_code_of_environment

    die_with_parent()
    ignore_signals_of_others()
    load_code_of_environment()


def identity(value: Any) -> Any:
    return value
