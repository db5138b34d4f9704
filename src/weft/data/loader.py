"""Batches, in order, from any position, made here or by workers: the same for any number of them."""
import traceback
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from .batch import Corruption, make_batch, real_tokens, to_torch
from .order import Draws
from .parent import die_with_parent
from .plan import Pick, Planner, Step, evaluation_plan, share
from .text import Samples

Batch = dict[str, Tensor]
Groups = Sequence[Sequence[Pick]]


class Work(NamedTuple):
    """One rank's part of a step."""
    step: Step                             # the whole of it
    batches: list[Batch]                   # this rank's micro-batches
    counts: dict[str, int]                 # units of each term in them
    tokens: int                            # without padding
    share: float = 1.0                     # 0: this rank had no row, and runs the first sample for company, so that no rank waits for it


class Made(NamedTuple):
    batches: list[Batch]
    counts: dict[str, int]
    tokens: int


class Failed(NamedTuple):
    """What went wrong in a worker: the line for the user, and where."""
    line: str
    trace: str


class Loader:
    """Plans here, and makes batches with `workers` processes (0: here)."""

    def __init__(self, planner: Planner, samples: Samples, corruption: Corruption, seed: int, rank: int = 0, world: int = 1,
                 micro: int | None = None, workers: int = 0) -> None:
        self.planner, self.samples, self.rank, self.world, self.micro, self.workers = planner, samples, rank, world, micro, workers
        self.maker = Maker(samples, corruption, Draws(seed), planner.packed)

    def start(self, position: int) -> Iterator[Work]:
        """Without end, from a position in the stream of samples."""
        return self.read(self.walk(position), self.maker)

    def once(self, rows: int) -> Iterator[Work]:
        """Every sample once, in order, `rows` at a time; the draws are those of the first epoch."""
        steps = evaluation_plan(len(self.samples), rows, self.rank, self.world)
        return self.read(((step, split(step.rows, None)) for step in steps), replace(self.maker, packed=None))

    def walk(self, position: int) -> Iterator[tuple[Step, list[Groups]]]:
        """Steps, and this rank's micro-batches of each."""
        while True:
            step = self.planner.at(position)
            yield step, split(share(step.rows, self.rank, self.world), self.micro)
            position = step.after

    def read(self, plan: Iterable[tuple[Step, list[Groups]]], maker: "Maker") -> Iterator[Work]:
        ahead: deque[tuple[Step, bool]] = deque()   # planned and not yet made

        def ask() -> Iterator[list[Groups]]:
            for step, groups in plan:
                ahead.append((step, bool(groups)))
                yield groups or [[[Pick(0, 0)]]]

        loader = DataLoader(maker, batch_size=None, sampler=ask(), num_workers=self.workers, collate_fn=as_made,
                            worker_init_fn=start_worker, generator=torch.Generator())   # its own: nothing is drawn from torch's
        for made in loader:
            if isinstance(made, Failed):
                error = ValueError(made.line)
                error.add_note(made.trace)
                raise error
            step, own = ahead.popleft()
            yield Work(step, *made) if own else Work(step, made.batches, dict.fromkeys(made.counts, 0), 0, 0.0)


@dataclass
class Maker(Dataset[Made | Failed]):
    """Makes what a plan asks for, in whatever process."""
    samples: Samples
    corruption: Corruption
    draws: Draws
    packed: int | None

    def __getitem__(self, asked: list[Groups]) -> Made | Failed:
        try:
            batches = [make_batch(self.samples, self.corruption, groups, self.draws, self.packed) for groups in asked]
        except ValueError as error:
            return Failed(str(error), traceback.format_exc())
        counted = [self.corruption.counts(batch) for batch in batches]
        counts = {term: sum(count[term] for count in counted) for term in counted[0]}
        return Made([to_torch(batch) for batch in batches], counts, sum(real_tokens(batch, self.corruption.fields) for batch in batches))


def start_worker(_: int) -> None:
    die_with_parent()


def as_made(made: Any) -> Any:
    return made


def split(rows: Groups, micro: int | None) -> list[Groups]:
    """As few micro-batches as hold `micro` rows at most, their sizes differing by one at most."""
    parts = 1 if micro is None else -(-len(rows) // micro)
    return [share(rows, part, parts) for part in range(parts)] if rows else []
