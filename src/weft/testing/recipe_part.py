"""Conformance of recipe parts: optimiser, schedule, batching, weight average, trainable."""

import json
from math import isfinite
from typing import Any

import numpy as np
import torch
from torch import nn

from .. import recipe as R
from .. import spec as S
from ..data.batches.batching import BatchPlanner, StepPlan, build_planner
from ..nn.layers.roles import Part, parameter_facts
from ..nn.model import Model, build
from ..support.registry import implementation
from ..training.averages import BestWeights, WeightCopy
from ..training.optimisers.optimiser import Optimiser, has_weight_decay
from ..training.trainable import freeze_untrained
from .value import calling, check_value


def check_schedule(schedule: R.Schedule, steps: int = 100) -> None:
    """Check that a schedule is a pure function of the step with finite factors that are not
    negative.

    Args:
        schedule: the value.
        steps: the length of the run; its last step is steps - 1.

    Raises:
        AssertionError: with the step and the violated condition in one line.
    """
    check_value(schedule)
    name = type(schedule).__name__
    scales = []
    for step in range(steps):
        with calling(f"{name}.scale({step}, {steps})"):
            scales.append(schedule.scale(step, steps))
    for step, scale in enumerate(scales):
        assert isinstance(scale, float), f"{name}.scale({step}, {steps}) is {scale!r}, not a float"
        assert isfinite(scale), f"{name}.scale({step}, {steps}) is {scale}"
        assert scale >= 0, f"{name}.scale({step}, {steps}) is {scale}, less than 0"
    backwards = [schedule.scale(step, steps) for step in reversed(range(steps))]
    assert scales == backwards[::-1], f"{name}.scale depends on the order of its calls"
    assert any(scales), f"{name} is 0 at every step"


def check_optimiser(optimiser: R.OptimiserSpec, steps: int = 3) -> None:
    """Check that an optimiser takes every parameter once, changes it by its group's learning rate
    and weight decay, and resumes bit for bit from its state.

    Args:
        optimiser: the value.
        steps: the number of steps before its state is saved and restored.

    Raises:
        AssertionError: with the parameter and the violated condition in one line.
    """
    check_value(optimiser)
    name = type(optimiser).__name__
    spec = tiny_decoder()
    first = build(spec)
    with calling(f"building {name}"):
        first_optimiser = Optimiser(optimiser, first)
    grouped = [
        p
        for optimizer in first_optimiser.optimisers
        for group in optimizer.param_groups
        for p in group["params"]
    ]
    assert len({id(p) for p in grouped}) == len(grouped), f"{name} takes a parameter twice"
    missing = [n for n, p in first_optimiser.parameters.items() if not any(p is h for h in grouped)]
    assert not missing, f"{name} does not update {missing[0]}"
    check_groups(name, optimiser)
    before = {n: p.detach().clone() for n, p in first.named_parameters()}
    with calling(f"a step of {name}"):
        for step in range(steps):
            take_step(first, first_optimiser, step)
    for n, p in first.named_parameters():
        assert bool(p.isfinite().all()), f"{name}: {n} is not finite after {steps} steps"
        assert not torch.equal(p, before[n]), f"{name} does not change {n}"
    check_resume(name, optimiser, first, first_optimiser, steps)


def check_resume(
    name: str, optimiser: R.OptimiserSpec, first: Model, before: Optimiser, steps: int
) -> None:
    """Check that an optimiser restored from its state takes the same next step."""
    second = build(tiny_decoder())
    second.load_state_dict(first.state_dict())
    resumed = Optimiser(optimiser, second)
    resumed.restore({key: value.clone() for key, value in before.state().items()})
    for model, one in ((first, before), (second, resumed)):
        take_step(model, one, steps)
    for (n, p), q in zip(first.named_parameters(), second.parameters(), strict=True):
        assert torch.equal(p, q), f"{name} resumes differently: {n}; keep all its state in `state`"


def check_groups(name: str, optimiser: R.OptimiserSpec) -> None:
    """Check that a step follows the schedule, and that norms and biases do not decay: without a
    gradient they do not change.
    """
    for scale, gradient in ((0.0, 1.0), (1.0, 0.0)):
        model = build(tiny_decoder())
        with torch.no_grad():
            for p in model.parameters():
                # biases start at 0, where decay has no effect
                p.add_(0.5)
        before = {n: p.detach().clone() for n, p in model.named_parameters()}
        roles = parameter_facts(model)
        built = Optimiser(optimiser, model)
        for p in model.parameters():
            p.grad = torch.full_like(p, gradient)
        with calling(f"a step of {name}"):
            built.step(scale)
        for n, p in model.named_parameters():
            same = torch.equal(p, before[n])
            assert same or scale, f"{name} changes {n} at a learning rate of 0; use group['lr']"
            assert same or gradient or has_weight_decay(p, roles[n].role), (
                f"{name} decays {n}, whose group has a weight decay of 0; use group['weight_decay']"
            )


def take_step(model: nn.Module, optimiser: Optimiser, step: int) -> None:
    generator = torch.Generator().manual_seed(step)
    for p in model.parameters():
        p.grad = torch.randn(p.shape, generator=generator)
    optimiser.step(0.5)
    optimiser.zero_grad()


class RandomLengths:
    """Samples with lengths but no content."""

    def __init__(self, count: int, longest: int) -> None:
        self.all = np.random.default_rng(0).integers(1, longest + 1, count)

    def __len__(self) -> int:
        return len(self.all)

    def __getitem__(self, i: int) -> dict[str, Any]:
        return {"tokens": np.zeros(self.all[i], np.int64)}

    def lengths(self, indices: np.ndarray) -> np.ndarray:
        lengths: np.ndarray = self.all[indices]
        return lengths


def check_batching(batching: R.Batching, samples: int = 97, epochs: int = 3) -> None:
    """Check that every epoch reads each sample once, that rows are within the length, and that a
    step depends only on its position.
    """
    check_value(batching)
    name = type(batching).__name__
    length = batching.length
    assert batching.rows_per_step() >= 1, f"{name}.rows_per_step() is less than 1"
    data = RandomLengths(samples, length)
    planner = build_planner(batching, data, seed=0)
    expected = length if batching.packs else None
    assert planner.packed == expected, f"{name}: packed is {planner.packed}, packs {batching.packs}"
    steps = walk(name, planner, epochs * samples)
    for step in reversed(steps):
        check_rows(name, batching, step, data)
        resumed = build_planner(batching, data, seed=0).at(step.position)
        assert resumed == step, (
            f"{name}: the step at {step.position} depends on the steps before it"
        )
    read = [pick for step in steps for row in step.rows for pick in row if pick.epoch < epochs]
    assert sorted(read) == [(e, i) for e in range(epochs) for i in range(samples)], (
        f"{name} does not read each sample once per epoch"
    )
    other = build_planner(batching, data, seed=1).at(0)
    assert other.rows != steps[0].rows, f"{name} ignores the seed"
    if batching.fixed_length:
        shorter = batching.at_length(max(1, length // 2))
        assert shorter.length == max(1, length // 2), f"{name}.at_length returns the wrong length"


def walk(name: str, planner: BatchPlanner, end: int) -> list[StepPlan]:
    """Return the steps from position 0 to `end`."""
    steps = []
    position = 0
    while position < end:
        step = planner.at(position)
        assert step.next_position > position, f"{name} does not advance at position {position}"
        steps.append(step)
        position = step.next_position
    return steps


def check_rows(name: str, batching: R.Batching, step: StepPlan, data: RandomLengths) -> None:
    """Check the rows of one step: one sample each, or several that fit into the length."""
    for row in step.rows:
        tokens = int(data.lengths(np.array([pick.index for pick in row])).sum())
        assert batching.packs or len(row) == 1, f"{name}.packs is False, but samples share a row"
        assert tokens <= batching.length, (
            f"{name}: a row has {tokens} tokens, but the length is {batching.length}"
        )


def check_average(average: R.WeightAverage, steps: int = 4) -> None:
    """Check that a weight copy holds the trained weights, and resumes bit for bit from its tensors
    and facts.
    """
    check_value(average)
    name = type(average).__name__
    first = build(tiny_decoder())
    second = build(tiny_decoder())
    next(first.parameters()).requires_grad_(False)
    next(second.parameters()).requires_grad_(False)
    copy: WeightCopy | None = implementation(average)(average, first)
    assert (copy is not None) == average.holds_weights, (
        f"{name}.holds_weights is {average.holds_weights}, but it gives {type(copy).__name__}"
    )
    if copy is None:
        return
    for step in range(steps):
        update_average(first, copy, step)
    trained = {n for n, p in first.named_parameters() if p.requires_grad}
    assert set(copy.copies) == trained, f"{name} does not hold exactly the trained weights"
    second.load_state_dict(first.state_dict())
    resumed: WeightCopy = implementation(average)(average, second)
    copies = {n: t.clone() for n, t in copy.copies.items()}
    resumed.restore(copies, json.loads(json.dumps(copy.facts())))
    for model, one in ((first, copy), (second, resumed)):
        update_average(model, one, steps)
    for n, tensor in copy.copies.items():
        assert bool(tensor.isfinite().all()), f"{name}: {n} is not finite"
        assert torch.equal(tensor, resumed.copies[n]), f"{name} resumes differently: {n}"
    assert copy.facts() == resumed.facts(), f"{name} resumes with different facts"


@torch.no_grad()
def update_average(model: Model, copy: WeightCopy, step: int) -> None:
    generator = torch.Generator().manual_seed(step)
    for p in model.parameters():
        if p.requires_grad:
            p.add_(torch.randn(p.shape, generator=generator))
    copy.update()
    if isinstance(copy, BestWeights):
        copy.update_best(step, {copy.metric: float(step % 3)})


def check_trainable(trainable: R.Trainable) -> None:
    """Check that the body is frozen and the head trained, that new parameters have roles, and that
    the seed decides them.
    """
    check_value(trainable)
    name = type(trainable).__name__
    before = {n: p.detach().clone() for n, p in build(tiny_encoder()).named_parameters()}
    first = build(tiny_encoder())
    second = build(tiny_encoder())
    for model in (first, second):
        freeze_untrained(model, trainable, seed=3)
    parts = parameter_facts(first)
    parameters = dict(first.named_parameters())
    assert list(first.state_dict()) == list(second.state_dict()), f"{name} has no fixed names"
    for (n, p), q in zip(parameters.items(), second.parameters(), strict=True):
        assert torch.equal(p, q), f"{name}: {n} is not determined by the seed"
        assert n not in before or torch.equal(p, before[n]), f"{name} changes {n}"
        in_head = parts[n].part is not Part.BODY
        assert p.requires_grad or not in_head, f"{name} freezes {n} of the head"
        assert trainable.trains_body or in_head or not p.requires_grad, (
            f"{name}.trains_body is False, but {n} is trained"
        )
    trained = {n for n, p in parameters.items() if p.requires_grad}
    assert trained < set(parameters), f"{name} freezes no parameter; omit `trainable` instead"
    first.train()(torch.arange(8)[None]).sum().backward()
    for n in trained:
        assert parameters[n].grad is not None, f"{name}: no gradient reaches {n}"


def tiny_decoder() -> S.Spec:
    norm = S.LayerNorm()
    block = S.Block(
        attention=S.pre_norm(norm, S.Attention(heads=2, pattern=S.CausalAttention())),
        feedforward=S.pre_norm(norm, S.MLP(hidden=16)),
    )
    stack = S.Stack(blocks=(block, block), norm=norm)
    return S.Spec(width=8, source=S.Tokens(vocab_size=11), head=S.LMHead(), decoder=stack)


def tiny_encoder() -> S.Spec:
    norm = S.LayerNorm()
    block = S.Block(
        attention=S.pre_norm(norm, S.Attention(heads=2)),
        feedforward=S.pre_norm(norm, S.MLP(hidden=16)),
    )
    head = S.ClassifierHead(num_labels=3)
    stack = S.Stack(blocks=(block, block), norm=norm)
    return S.Spec(width=8, source=S.Tokens(vocab_size=11), head=head, encoder=stack)
