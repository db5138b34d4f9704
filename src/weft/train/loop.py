"""The loop: a generator of steps. A step is a pure function of the state before it and its number."""
import hashlib
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from .. import recipe as R
from ..data.batch import SAMPLES
from ..data.loader import Loader, Work
from ..data.order import mix
from ..layers.attention import Attention
from ..layers.keyed import samples
from ..model.block import Block
from ..objectives.base import Batch, Objective
from .adapt import awake
from .average import BestWeights, MovingAverage
from .distribute import World
from .guard import Guard
from .meter import expert_load
from .optimise import Optimiser
from .schedule import scale


class Event(NamedTuple):
    """What happened at one step; `step` counts from 1."""
    step: int
    loss: float
    terms: dict[str, float]                # each term's mean
    norm: float                            # of the gradient, before clipping
    rate: float
    tokens: int                            # over all ranks
    seconds: float
    position: int                          # samples read so far in this phase
    refused: str | None = None             # why the step was not taken
    samples: tuple[tuple[int, int], ...] = ()   # (epoch, index) of every sample
    experts: dict[str, float] | None = None     # how evenly the tokens are spread over the experts
    valid: dict[str, float] | None = None  # what validation found after this step, where it was due


class Trainer:
    """Objective, optimiser, average and counters: everything that changes, and how."""

    def __init__(self, recipe: R.Recipe, objective: Objective, loader: Callable[[int], Loader], world: World | None = None) -> None:
        self.recipe, self.objective, self.loader, self.world = recipe, objective, loader, world or World()
        prepare(objective.to(self.world.device), recipe)
        self.module = self.world.wrap(objective)
        self.optimiser, self.guard = Optimiser(recipe.optimiser, objective), Guard(recipe.guard)
        self.average = MovingAverage(objective, recipe.average.decay) if isinstance(recipe.average, R.Moving) else \
            BestWeights(objective, recipe.average.metric) if isinstance(recipe.average, R.Best) else None
        self.step, self.position, self.tokens = 0, 0, 0
        self.validated = 0                 # the last step at which the validation was done
        self.stop = False                  # set by a signal; all ranks stop at the same step

    def __iter__(self) -> Iterator[Event]:
        works, length = None, None
        self.guard.judge()
        while self.step < self.recipe.steps:
            if length != self.recipe.length(self.step):
                length = self.recipe.length(self.step)
                if self.step and length != self.recipe.length(self.step - 1):
                    self.position = 0      # a new phase orders its own samples
                works = self.loader(length).start(self.position)
            assert works is not None
            begin = time.perf_counter()
            event = self.take(next(works), begin)
            if event is None:
                return
            yield event
            self.guard.judge()             # once the step is logged

    def take(self, work: Work, begin: float) -> Event | None:
        recipe, terms = self.recipe, list(self.objective.weights)
        *counted, tokens, stop = self.world.sum([*(float(work.counts[t]) for t in terms), float(work.tokens), float(self.stop)])
        if stop:
            return None
        awake(self.objective, recipe.trained)
        counts = dict(zip(terms, counted, strict=True))
        summed = self.backward(work, counts)
        sums = self.world.sum(summed.tolist())
        means = {t: s / max(counts[t], 1) for t, s in zip(terms, sums, strict=False)}
        loss = sum(self.objective.weights[t] * mean for t, mean in means.items())
        gradients = [p.grad for p in self.optimiser.named.values() if p.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        length = float(norm)
        problem = self.guard.problem(loss, length)
        samples = tuple((int(pick.epoch), int(pick.index)) for group in work.step.rows for pick in group)
        rate = scale(recipe.schedule, self.step, recipe.steps)
        if problem is None:
            if recipe.clip is not None:
                torch.nn.utils.clip_grads_with_norm_(self.optimiser.named.values(), recipe.clip, norm)
            self.optimiser.step(rate)
            largest = torch.nn.utils.get_total_norm([p.detach() for p in self.optimiser.named.values()], float("inf"))
            self.guard.weights(self.step + 1, float(largest))
            if isinstance(self.average, MovingAverage):
                self.average.update()
            self.guard.accept(loss)
        self.optimiser.zero()
        self.step, self.position, self.tokens = self.step + 1, work.step.after, self.tokens + int(tokens)
        if problem is not None:
            self.guard.refuse({"step": self.step, "reason": problem, "samples": [list(s) for s in samples]})
        return Event(self.step, loss, means, length, rate * self.optimiser.peak, int(tokens), time.perf_counter() - begin, self.position,
                     problem, samples, expert_load(sums[len(terms):], [len(load_E) for load_E in self.objective.load]))

    def let_go(self) -> None:
        """Of other ranks, before their connection ends: else PyTorch's engine ends it with Python's lock held, at times for ever."""
        self.module = self.objective

    def probe(self) -> tuple[float, int]:
        """Seconds and tokens of the step to come, tried out without an update; nothing is changed by it."""
        work = next(self.loader(self.recipe.length(self.step)).start(self.position))
        counts = dict.fromkeys(self.objective.weights, 1.0)
        seconds = float("inf")
        with torch.random.fork_rng(devices=[]):    # a run that is at its end already must keep its numbers
            for _ in range(2):             # the first pass also fills caches
                begin = time.perf_counter()
                self.backward(work, counts).tolist()           # the numbers themselves: a device may run ahead
                self.optimiser.zero()
                seconds = min(seconds, time.perf_counter() - begin)
        return seconds, int(self.world.sum([float(work.tokens)])[0])

    def backward(self, work: Work, counts: dict[str, float]) -> Tensor:
        """Gradients of the whole step's loss; returns this rank's sums by term, then the load of every expert of every layer. One
        division, by the count over all ranks."""
        weights = self.objective.weights
        self.objective.load = []
        total = torch.zeros(len(weights), dtype=torch.float64, device=self.world.device)
        for i, batch in enumerate(work.batches):
            self.seed(i)
            inputs = moved(batch, self.world.device)
            with self.world.alone(self.module, i < len(work.batches) - 1), samples(inputs.pop(SAMPLES)):
                with precision(self.recipe.precision, self.world.device):
                    sums = self.module(inputs)
                loss = sum(sums[t] * (weights[t] * work.share * self.world.size / max(counts[t], 1)) for t in weights)
                assert isinstance(loss, Tensor)
                loss.backward()
            total += torch.stack([sums[t].detach().double() for t in weights]) * work.share
        return torch.cat([total, *(load_E.double() * work.share for load_E in self.objective.load)])

    def seed(self, micro: int) -> None:
        """Every micro-batch of a step draws the same numbers: its samples tell them apart (`layers.keyed`). An accelerator's fused
        kernels cannot do so, and draw for themselves."""
        torch.manual_seed(mix(self.recipe.seed, self.step))
        if self.world.device.type != "cpu":
            torch.get_device_module(self.world.device).manual_seed(mix(self.recipe.seed, self.step, self.world.rank, micro))

    @property
    def fused_dropout(self) -> bool:
        """Whether attention weights are dropped by an accelerator's own kernel, which knows rows and not samples."""
        return self.world.device.type != "cpu" and any(isinstance(m, Attention) and m.s.dropout for m in self.objective.modules())

    def notes(self) -> list[str]:
        """What is not as it is elsewhere."""
        return ["attention dropout is drawn by the fused kernel: it depends on the micro-batches and ranks, unlike all other dropout"
                ] if self.fused_dropout else []

    # What a checkpoint holds

    def state(self) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]]:
        groups = {"model": dict(self.objective.state_dict()), "optimiser": self.optimiser.state(),
                  "average": self.average.held if self.average else {}, "rng": {"torch": torch.get_rng_state()}}
        facts = {"step": self.step, "position": self.position, "tokens": self.tokens, "guard": self.guard.state()}
        return groups, facts | (self.average.facts() if self.average else {})

    def restore(self, groups: dict[str, dict[str, Tensor]], facts: dict[str, Any]) -> None:
        self.objective.load_state_dict(groups["model"])
        self.optimiser.restore(groups.get("optimiser", {}))
        if self.average is not None:
            self.average.restore(groups["average"], facts)
        torch.set_rng_state(groups["rng"]["torch"])
        self.step, self.position, self.tokens = facts["step"], facts["position"], facts["tokens"]
        self.guard.restore(facts["guard"])

    def digest(self) -> str:
        """SHA-256 of all of the state, bit by bit."""
        return digest(*self.state())


def digest(groups: dict[str, dict[str, Tensor]], facts: dict[str, Any] | None = None) -> str:
    found = hashlib.sha256(repr(sorted((facts or {}).items())).encode())
    for group in sorted(groups):
        for name, tensor in sorted(groups[group].items()):
            found.update(f"{group}/{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            found.update(tensor.detach().contiguous().cpu().reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()


def precision(name: str, device: torch.device) -> Any:
    return torch.autocast(device.type, torch.bfloat16) if name == "bf16" else nullcontext()


def moved(batch: Batch, device: torch.device) -> Batch:
    return {name: tensor.to(device, non_blocking=True) for name, tensor in batch.items()}


def prepare(objective: nn.Module, recipe: R.Recipe) -> None:
    """Recompute, then compile: each block from outside, in this order."""
    for block in [m for m in objective.modules() if isinstance(m, Block)]:
        if recipe.recompute:
            block.forward = partial(checkpoint, block.forward, use_reentrant=False, preserve_rng_state=True)  # type: ignore[method-assign]
        if recipe.compile:
            block.compile()
