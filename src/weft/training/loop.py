"""The loop: a generator of steps. A step is a pure function of the state before it and its
number.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from ..data.batches.collate import SAMPLES
from ..data.batches.loader import Loader, RankBatch, SplitRows, split_by_rank
from ..nn.kernels.keyed_random import sample_numbers
from ..nn.layers.attention import AttentionLayer
from ..support.order import hash_to_int
from ..tasks.base import Batch, Loss
from .averages import WeightCopy
from .checkpoints.parts import SavedGroups, load_weights, read_like, state_digest
from .guard import LossGuardState
from .optimisers.optimiser import Optimiser
from .parallel.ranks import DistributedRanks
from .parallel.sharding import full_tensor, local_tensor
from .step import StepOptions, TrainStep
from .throughput import expert_load
from .trainable import set_train_mode


class Trainer:
    """The state of training (model and loss, optimiser, average, counters) and the step that
    changes it.

    Args:
        loss: the task's module.
        module: the same on all ranks, as `place_on_ranks` returns it.
        optimiser: over the parameters of the loss.
        average: the copy of the weights that each step updates, if any.
        loader: opens the batches of rows of a length.
        ranks: of this process.
        options: of each step.
    """

    split_rows: SplitRows = staticmethod(split_by_rank)  # what a rank reads of a step
    averages_gradients = True  # the module sums gradients over the ranks in its backward pass

    def __init__(
        self,
        loss: Loss,
        module: nn.Module,
        optimiser: Optimiser,
        average: WeightCopy | None,
        loader: Callable[[int], Loader],
        ranks: DistributedRanks,
        options: StepOptions,
    ) -> None:
        self.loss = loss
        self.module = module
        self.optimiser = optimiser
        self.average = average
        self.schedule = options.schedule
        self.loader = loader
        self.ranks = ranks
        self.options = options
        self.guard = LossGuardState(options.guard)
        self.step = 0
        self.position = 0
        self.tokens = 0
        self.last_validated_step = 0  # the last step at which the validation was done
        self.stop_requested = False  # set by a signal; all ranks stop at the same step

    def __iter__(self) -> Iterator[TrainStep]:
        works = None
        length = None
        self.guard.check_budget()
        while self.step < self.schedule.steps:
            if length != self.schedule.row_length(self.step):
                length = self.schedule.row_length(self.step)
                if self.step and length != self.schedule.row_length(self.step - 1):
                    self.position = 0  # a new phase orders its own samples
                works = self.loader(length).from_position(self.position)
            assert works is not None
            begin = time.perf_counter()
            work = next(works)
            waited = time.perf_counter() - begin
            event = self.train_step(work, begin)
            if event is None:
                return
            yield event._replace(data_seconds=waited)
            self.guard.check_budget()  # once the step is logged

    def train_step(self, work: RankBatch, begin: float) -> TrainStep | None:
        terms = list(self.loss.weights)
        *counted, tokens, stop = self.ranks.sum(
            [
                *(float(work.counts[t]) for t in terms),
                float(work.tokens),
                float(self.stop_requested),
            ]
        )
        if stop:
            return None
        set_train_mode(self.loss, self.options.trainable)
        counts = dict(zip(terms, counted, strict=True))
        sums = self.sum_gradients(work, counts)
        means = {t: s / max(counts[t], 1) for t, s in zip(terms, sums, strict=False)}
        loss = sum(self.loss.weights[t] * mean for t, mean in means.items())
        gradients = [p.grad for p in self.optimiser.parameters.values() if p.grad is not None]
        norm = full_tensor(torch.nn.utils.get_total_norm(gradients))
        length = float(norm)
        problem = self.guard.reason_to_skip(loss, length)
        samples = tuple(
            (int(pick.epoch), int(pick.index)) for group in work.step.rows for pick in group
        )
        rate = self.schedule.lr_scale(self.step)
        if problem is None:
            if self.options.grad_clip is not None:
                torch.nn.utils.clip_grads_with_norm_(
                    self.optimiser.parameters.values(), self.options.grad_clip, norm
                )
            self.optimiser.step(rate)
            self.guard.check_weights(self.step + 1, self.largest_weight())
            if self.average is not None:
                self.average.update()
            self.guard.record_loss(loss)
        self.optimiser.zero_grad()
        self.step += 1
        self.position = work.step.next_position
        self.tokens += int(tokens)
        if problem is not None:
            self.guard.record_skip(
                {"step": self.step, "reason": problem, "samples": [list(s) for s in samples]}
            )
        return TrainStep(
            self.step,
            loss,
            means,
            length,
            rate * self.optimiser.peak_lr,
            int(tokens),
            time.perf_counter() - begin,
            self.position,
            problem,
            samples,
            expert_load(sums[len(terms) :], [len(load_E) for load_E in self.loss.expert_load]),
        )

    def largest_weight(self) -> float:
        """Return the largest absolute weight, of sharded weights the sum of each rank's: not finite
        if any weight is not.
        """
        parts = [local_tensor(p.detach()) for p in self.optimiser.parameters.values()]
        largest = torch.nn.utils.get_total_norm([part for part in parts if part.numel()], torch.inf)
        return self.ranks.sum([float(largest)])[0] if self.ranks.splits_weights else float(largest)

    def drop_ddp(self) -> None:
        """Drop DDP before destroying the process group: its destructor can deadlock while holding
        the GIL.
        """
        self.module = self.loss

    def time_one_step(self) -> tuple[float, int]:
        """Return the seconds and tokens of the next step, measured without an update; the state
        does not change.
        """
        work = next(self.loader(self.schedule.row_length(self.step)).from_position(self.position))
        counts = dict.fromkeys(self.loss.weights, 1.0)
        seconds = float("inf")
        # A run that is at its end already must keep its numbers
        with torch.random.fork_rng(devices=[]):
            for _ in range(2):  # the first pass also fills caches
                begin = time.perf_counter()
                # The numbers themselves: a device may run ahead
                self.backward(work, counts).tolist()
                self.optimiser.zero_grad()
                seconds = min(seconds, time.perf_counter() - begin)
        return seconds, int(self.ranks.sum([float(work.tokens)])[0])

    def sum_gradients(self, work: RankBatch, counts: dict[str, float]) -> list[float]:
        """Compute the gradients of the whole step; return the sum of each loss term over all ranks,
        then the load of every expert of every layer.
        """
        return self.ranks.sum(self.backward(work, counts).tolist())

    def backward(self, work: RankBatch, counts: dict[str, float]) -> Tensor:
        """Compute the gradients of the whole step; return this rank's sum of each loss term, then
        the load of every expert of every layer. The sums are divided once, by the counts over all
        ranks.
        """
        weights = self.loss.weights
        self.loss.expert_load = []
        total = torch.zeros(len(weights), dtype=self.sum_dtype, device=self.ranks.device)
        batches = self.weighted_batches(work)
        load = list[Tensor]()
        for i, (batch, weight) in enumerate(batches):
            with self.ranks.no_sync(self.module, i < len(batches) - 1):
                total += weight * self.backward_batch(i, batch, counts, weight * self.ranks.size)
            if weight or not i:
                load = [load_E.to(total.dtype) * weight for load_E in self.loss.expert_load]
        return torch.cat([total, *load])

    def backward_batch(
        self, number: int, batch: Batch, counts: dict[str, float], scale: float
    ) -> Tensor:
        """Add the gradients of one micro-batch; return its sum of each loss term."""
        weights = self.loss.weights
        self.seed(number)
        inputs = to_device(batch, self.ranks.device)
        with sample_numbers(inputs.pop(SAMPLES)):
            with autocast(self.options.precision, self.ranks.device):
                sums = self.module(inputs)
            loss = sum(sums[t] * (weights[t] * scale / max(counts[t], 1)) for t in weights)
            assert isinstance(loss, Tensor)
            loss.backward()
        return torch.stack([sums[t].detach().to(self.sum_dtype) for t in weights])

    @property
    def sum_dtype(self) -> torch.dtype:
        """The type in which losses are summed: Metal has no float64."""
        return torch.float32 if self.ranks.device.type == "mps" else torch.float64

    def weighted_batches(self, work: RankBatch) -> list[tuple[Batch, float]]:
        """Return this rank's micro-batches and their weights. Ranks that gather weights from each
        other run equally many: one with fewer rows repeats its last, with weight 0.
        """
        batches = [(batch, work.weight) for batch in work.batches]
        if self.ranks.splits_weights and (micro := self.options.micro_batch_size) is not None:
            most_rows = -(-len(work.step.rows) // self.ranks.size)
            batches += [(work.batches[-1], 0.0)] * (-(-most_rows // micro) - len(batches))
        return batches

    def seed(self, micro_batch: int) -> None:
        """Seed a micro-batch. All of a step have the same seed, since random numbers also depend on
        the sample (`kernels.keyed_random`). Fused kernels of an accelerator cannot do so and get a
        seed per rank and micro-batch.
        """
        torch.manual_seed(hash_to_int(self.options.seed, self.step))
        if self.ranks.device.type != "cpu":
            torch.get_device_module(self.ranks.device).manual_seed(
                hash_to_int(self.options.seed, self.step, self.ranks.rank, micro_batch)
            )

    @property
    def fused_dropout(self) -> bool:
        """Whether attention dropout is that of an accelerator's fused kernel, whose random numbers
        depend on rows instead of samples.
        """
        return self.ranks.device.type != "cpu" and any(
            isinstance(m, AttentionLayer) and m.spec.dropout for m in self.loss.modules()
        )

    def notes(self) -> list[str]:
        """Return notes on what depends on the device."""
        if not self.fused_dropout:
            return []
        return [
            "attention dropout is that of the fused kernel: it depends on the micro-batches and "
            "ranks, "
            "unlike all other dropout"
        ]

    # What a checkpoint holds

    def state(self) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]]:
        groups = {
            "model": dict(self.loss.state_dict()),
            "optimiser": self.optimiser.state(),
            "average": self.average.copies if self.average else {},
            "rng": {"torch": torch.get_rng_state()},
        }
        facts = {
            "step": self.step,
            "position": self.position,
            "tokens": self.tokens,
            "guard": self.guard.state(),
        }
        return groups, facts | (self.average.facts() if self.average else {})

    def restore(self, groups: SavedGroups, facts: dict[str, Any]) -> None:
        """Take the state of a checkpoint: each rank reads its own parts of the tensors, whoever
        wrote them.
        """
        load_weights(self.loss, groups["model"])
        self.optimiser.restore(groups.get("optimiser", {}))
        if self.average is not None:
            self.average.restore(groups["average"], facts)
        torch.set_rng_state(read_like(torch.empty(0), groups["rng"]["torch"]))
        self.step = facts["step"]
        self.position = facts["position"]
        self.tokens = facts["tokens"]
        self.guard.restore(facts["guard"])

    def digest(self) -> str:
        """Return the SHA-256 of the whole state."""
        return state_digest(*self.state())


def autocast(name: str, device: torch.device) -> Any:
    assert name != "auto", "the precision is resolved when the run is built"
    return torch.autocast(device.type, torch.bfloat16) if name == "bf16" else nullcontext()


def to_device(batch: Batch, device: torch.device) -> Batch:
    return {name: tensor.to(device, non_blocking=True) for name, tensor in batch.items()}
