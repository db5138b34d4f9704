"""The training loop: one division by the counts of the whole step, for any micro-batches; the step
count advances with optimiser steps only.
"""

import copy
import json
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import weft
from tests import whole_runs
from tests.tasks.made import build_pair
from weft import recipe as R
from weft import spec as S
from weft.data.batches.batching import StepPlan, build_planner
from weft.data.batches.collate import build_batch
from weft.data.batches.loader import Loader, RankBatch, to_torch
from weft.runs.logs.log import read_log
from weft.support.order import SampleGenerators
from weft.tasks.base import LengthLimitedSamples, Loss, Preprocess
from weft.training.averages import average_states, build_average
from weft.training.checkpoints.checkpoint import all_checkpoints
from weft.training.loop import Trainer
from weft.training.optimisers.optimiser import Optimiser
from weft.training.parallel.ranks import DistributedRanks, init_ranks, place_on_ranks
from weft.training.step import StepOptions, TrainStep
from weft.training.throughput import expert_load

from ..faults.runs import Whole, child, gpt, partial_recipe, ranks, whole
from ..tasks.cases import CASES, IMAGE_CASES, routed
from ..tasks.made import Given, meta

__all__ = ["whole"]
Built = tuple[Preprocess, Loss, LengthLimitedSamples]
FEW = pytest.mark.parametrize(
    "name",
    ["causal", "causal, experts", "masked, segment pairs", "replaced", "spans", "translate", "tag"],
)


def recipe(model: S.Spec, **more: Any) -> R.Recipe:
    """Fourteen rows a step, by the plainest update: its difference is the gradient's."""
    return partial_recipe(
        model,
        R.CausalLM(),
        **{
            "batch": R.FixedBatch(size=14, length=32),
            "optimiser": R.SGD(lr=0.1, momentum=0.0),
            "schedule": R.ConstantSchedule(),
            "grad_clip": None,
            **more,
        },
    )


def built(
    name: str, dtype: torch.dtype = torch.float64, dropout: float = 0.0
) -> tuple[S.Spec, Built]:
    value, spec, known, samples = (CASES | IMAGE_CASES)[name]()
    spec = S.with_dropout(spec, dropout)
    if isinstance(value, R.ReplacedTokenDetection):
        value = replace(value, generator=S.with_dropout(value.generator, dropout))
    corruption, objective = build_pair(value, spec, known, seed=1, dtype=dtype)
    return spec, (corruption, objective, samples)


def trainer(s: R.Recipe, made: Built, ranks: DistributedRanks | None = None) -> Trainer:
    corruption, objective, samples = made

    def loader(length: int) -> Loader:
        return Loader(
            build_planner(s.batch, samples, s.seed),
            samples,
            corruption,
            s.seed,
            ranks.rank if ranks else 0,
            ranks.size if ranks else 1,
            s.micro_batch_size,
            s.workers,
        )

    here = ranks or DistributedRanks()
    return Trainer(
        objective,
        place_on_ranks(objective, here, checkpointing=s.activation_checkpointing),
        Optimiser(s.optimiser, objective),
        build_average(s.average, objective),
        loader,
        here,
        StepOptions(
            s.training_schedule,
            grad_clip=s.grad_clip,
            micro_batch_size=s.micro_batch_size,
            guard=s.guard,
            seed=s.seed,
        ),
    )


def weights(made: Trainer) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in made.loss.named_parameters()}


def steps(made: Trainer, count: int) -> list[TrainStep]:
    found = []
    for event in made:
        found.append(event)
        if len(found) == count:
            break
    return found


def close(a: Any, b: Any) -> None:
    torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", [*CASES, *IMAGE_CASES])
def test_micro_batches_of_any_size_move_the_weights_as_the_whole_batch_does(name: str) -> None:
    """With dropout, which depends on the sample and the place in it."""
    spec, made = built(name, dropout=0.1)
    single = trainer(recipe(spec), (made[0], copy.deepcopy(made[1]), made[2]))
    start = weights(single)
    expected = steps(single, 2)
    assert all(
        not torch.equal(start[n], w)
        for n, w in weights(single).items()
        if not n.endswith("key.bias")
    )
    for parts in (2, 4, 7):
        split = trainer(
            recipe(spec, micro_batch_size=-(-14 // parts)),
            (made[0], copy.deepcopy(made[1]), made[2]),
        )
        assert len(next(split.loader(32).from_position(0)).batches) == parts
        found = steps(split, 2)
        close(weights(split), weights(single))
        close(
            [[e.loss, e.grad_norm, e.tokens] for e in found],
            [[e.loss, e.grad_norm, e.tokens] for e in expected],
        )
        close([e.expert_load for e in found], [e.expert_load for e in expected])
        assert [e.sample_ids for e in found] == [e.sample_ids for e in expected]


# Two ranks


class Few:
    """Rows of `size` tokens, all of them labels; sample 0 has three."""

    def __init__(self, size: int) -> None:
        generator = np.random.default_rng(0)
        self.rows = [
            {
                "tokens": generator.integers(5, 52, 4 if i == 0 else size + 1),
                "documents": np.empty(0, np.int64),
            }
            for i in range(2)
        ]

    def reader(self) -> LengthLimitedSamples:
        return LengthLimitedSamples(Given(self.rows), 300)


def lopsided(
    ranks: DistributedRanks | None = None, micro: int | None = None
) -> tuple[Trainer, list[TrainStep]]:
    """A step of two rows with 3 and 300 labels, of a model with experts."""
    spec = routed(
        S.with_dropout(
            weft.gpt2(depth=1, width=16, heads=2, hidden=32, vocab_size=60, positions=300), 0.0
        )
    )
    corruption, objective = build_pair(
        R.CausalLM(), spec, meta(R.Documents()), seed=1, dtype=torch.float64
    )
    made = trainer(
        recipe(spec, batch=R.FixedBatch(size=2, length=300), micro_batch_size=micro),
        (corruption, objective, Few(300).reader()),
        ranks,
    )
    work = next(made.loader(300).from_position(0))
    if ranks is not None:
        assert work.counts["token"] in (3, 300)
    return made, steps(made, 2)


def told(made: Trainer, found: list[TrainStep]) -> Any:
    return [
        {n: w.tolist() for n, w in weights(made).items()},
        [[e.loss, e.grad_norm, e.tokens, e.terms, e.expert_load, e.sample_ids] for e in found],
    ]


def test_two_ranks_with_3_and_300_labels_are_one(whole: Whole, tmp_path: Path) -> None:
    single = json.loads(json.dumps(told(*lopsided())))

    def work() -> Any:
        with init_ranks() as ranks_:
            made, found = lopsided(ranks_)
            answer = told(made, found)
            made.drop_ddp()
        return answer

    for answer in ranks(partial_recipe(gpt(), R.CausalLM()), tmp_path / "run", 2, work):
        for name, value in single[0].items():
            close(
                torch.tensor(answer[0][name], dtype=torch.float64),
                torch.tensor(value, dtype=torch.float64),
            )
        close([a[:5] for a in answer[1]], [b[:5] for b in single[1]])
        assert [a[5] for a in answer[1]] == [b[5] for b in single[1]]
    halves = json.loads(json.dumps(told(*lopsided(micro=1))))
    for name, value in single[0].items():
        close(
            torch.tensor(halves[0][name], dtype=torch.float64),
            torch.tensor(value, dtype=torch.float64),
        )


@pytest.mark.parametrize("name", ["masked", "causal", "translate", "replaced", "tag"])
def test_samples_that_share_a_row_drop_what_they_drop_alone(name: str) -> None:
    """Packed into rows of 96 tokens, or padded a row each: the same loss and the same update, with
    dropout.
    """
    spec, made = built(name, dropout=0.1)
    full = recipe(spec, batch=R.PackedBatch(size=4, length=96))
    packed, padded = (trainer(full, (made[0], copy.deepcopy(made[1]), made[2])) for _ in range(2))
    groups = next(packed.loader(96).from_position(0)).step.rows
    assert any(len(group) > 1 for group in groups)
    one_a_row = alone(padded, [[pick] for group in groups for pick in group], made)
    padded.loader = lambda _: one_a_row
    found = [
        (event.loss, event.grad_norm, weights(one))
        for one in (packed, padded)
        for event in steps(one, 1)
    ]
    close(*found)


def alone(one: Trainer, rows: Any, made: Built) -> Any:
    """A loader whose one step has these samples, a row each."""
    batch = build_batch(made[2], made[0], rows, SampleGenerators(one.options.seed))
    counts = made[0].loss_counts(batch)
    work = RankBatch(StepPlan(0, len(rows), rows), [to_torch(batch)], counts, 0)
    return SimpleNamespace(from_position=lambda _: iter([work]))


def test_expert_load_is_reported_as_entropy_and_largest_share() -> None:
    assert expert_load([], []) is None
    assert expert_load([5.0] * 4, [4]) == pytest.approx({"entropy": 1.0, "max_share": 0.25})
    assert expert_load([9.0, 0.0, 3.0, 3.0, 3.0], [2, 3]) == pytest.approx(
        {"entropy": 0.5, "max_share": 1.0}
    )


class SlowPreprocess:
    """Takes its time for every row."""

    def __init__(self, inner: Preprocess) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def __call__(self, *given: Any) -> Any:
        time.sleep(0.01)
        return self.inner(*given)


def test_the_time_that_a_step_waits_for_its_batch_is_measured() -> None:
    spec, made = built("causal")
    quick = steps(trainer(recipe(spec), made), 2)
    slow = steps(trainer(recipe(spec), (SlowPreprocess(made[0]), *made[1:])), 2)  # type: ignore[arg-type]
    for event in slow:
        assert 14 * 0.01 <= event.data_seconds <= event.seconds
    assert all(0 < event.data_seconds < event.seconds for event in quick)


# Recompute


@FEW
def test_recomputing_gives_every_bit_of_the_gradient_and_of_the_numbers_after_it(name: str) -> None:
    found = []
    for again in (False, True):
        value, spec, known, samples = CASES[name]()
        if isinstance(value, R.ReplacedTokenDetection):
            value = replace(value, generator=S.with_dropout(value.generator, 0.1))
        spec = S.with_dropout(spec, 0.1)
        made = trainer(
            recipe(spec, activation_checkpointing=again, micro_batch_size=5),
            (*build_pair(value, spec, known), samples),
        )
        steps(made, 3)
        found.append(made.digest())
    assert found[0] == found[1]


# Time


@pytest.mark.parametrize(
    "schedule",
    [
        R.LinearSchedule(warmup_steps=4),
        R.CosineSchedule(warmup_steps=2),
        R.InverseSqrt(warmup_steps=3),
        R.WarmupStableDecay(warmup_steps=1),
    ],
)
def test_the_rate_follows_steps_of_the_optimiser_not_micro_batches_or_ranks(
    schedule: R.Schedule, tmp_path: Path
) -> None:
    s = partial_recipe(
        weft.gpt2(depth=1, width=16, heads=2, vocab_size=60, positions=64),
        R.CausalLM(),
        schedule=schedule,
        steps=6,
    )
    expected = [3e-3 * schedule.scale(step, 6) for step in range(6)]

    def rates(micro: int | None, ranks: DistributedRanks | None = None) -> list[float]:
        _, made = built("causal", torch.float32)
        one = trainer(
            replace(s, micro_batch_size=micro, batch=R.FixedBatch(size=6, length=32)), made, ranks
        )
        seen = []
        for event in one:
            seen.append(event.lr)
            assert all(
                group["lr"] == event.lr
                for part in one.optimiser.optimisers
                for group in part.param_groups
            )
            assert {
                int(state["step"])
                for part in one.optimiser.optimisers
                for state in part.state.values()
            } == {event.step}
        one.drop_ddp()
        return seen

    def work() -> Any:
        with init_ranks() as ranks_:
            return rates(2, ranks_)

    assert rates(None) == rates(1) == rates(4) == expected
    if isinstance(schedule, R.LinearSchedule):
        assert ranks(s, tmp_path / "run", 2, work) == [expected, expected]


# Clip, average, precision


def test_the_gradient_is_clipped_by_the_norm_of_the_whole_step() -> None:
    spec, made = built("causal")
    free, held = (
        trainer(
            recipe(spec, grad_clip=clip, micro_batch_size=3),
            (made[0], copy.deepcopy(made[1]), made[2]),
        )
        for clip in (None, 0.25)
    )
    start = weights(free)
    (plain,) = steps(free, 1)
    (clipped,) = steps(held, 1)
    assert clipped.grad_norm == plain.grad_norm > 0.25  # said before clipping
    for name, w in weights(held).items():
        close(
            w - start[name], (weights(free)[name] - start[name]) * 0.25 / (plain.grad_norm + 1e-6)
        )


def test_the_averaged_weights_are_what_is_kept_and_they_are_not_trained_on(
    whole: Whole, tmp_path: Path
) -> None:
    s = replace(whole.recipes["causal"], steps=6, checkpoints=R.Checkpoints(every_steps=2, keep=2))
    for average, out in (
        (R.EMA(decay=0.5), tmp_path / "moving"),
        (R.AverageLast(checkpoints=3), tmp_path / "last"),
    ):
        assert isinstance(child(replace(s, average=average), out), str)
        kept = weft.load(out / "model").state_dict()
        saved = all_checkpoints(out / "checkpoints")
        if isinstance(average, R.AverageLast):
            assert [c.step for c in saved] == [2, 4, 6]
            expected = average_states(c.all_tensors()["model"] for c in saved)
        else:
            expected = saved[-1].all_tensors()["average"]
        assert all(
            torch.equal(kept[name.removeprefix("model.")], value)
            for name, value in expected.items()
            if name.startswith("model.")
        )
        live = saved[-1].all_tensors()["model"]
        assert not torch.equal(live["model.source.tokens.weight"], kept["source.tokens.weight"])
        lines = read_log(out / "log.jsonl")
        assert [next(iter(set(line) - {"step"})) for line in lines[-2:]] == ["valid", "averaged"]
        assert lines[-1]["averaged"]["loss"] != lines[-2]["valid"]["loss"]


def test_bf16_computes_in_16_bits_and_keeps_weights_and_sums_in_32(
    whole: Whole, tmp_path: Path
) -> None:
    made = whole_runs.build_run(
        replace(whole.recipes["causal, bf16"], steps=4, activation_checkpointing=False)
    )
    seen = set()
    for block in made.loss.model.modules():
        if isinstance(block, torch.nn.Linear):
            block.register_forward_hook(lambda module, given, out: seen.add(out.dtype))
    found = steps(made.trainer, 4)
    plain = steps(
        whole_runs.build_run(
            replace(
                whole.recipes["causal, bf16"],
                steps=4,
                activation_checkpointing=False,
                precision="fp32",
            )
        ).trainer,
        4,
    )
    assert torch.bfloat16 in seen
    assert {p.dtype for p in made.loss.parameters()} == {torch.float32}
    assert all(
        a.loss != b.loss and abs(a.loss - b.loss) < 0.05 for a, b in zip(found, plain, strict=True)
    )


@pytest.mark.slow
def test_a_compiled_run_learns_as_a_plain_one(whole: Whole) -> None:
    s = replace(
        whole.recipes["causal"],
        model=S.with_dropout(whole.recipes["causal"].model, 0.0),
        steps=4,
        micro_batch_size=None,
    )
    plain, fast = (
        steps(whole_runs.build_run(replace(s, compile=compiled)).trainer, 4)
        for compiled in (False, True)
    )
    assert all(abs(a.loss - b.loss) < 1e-4 for a, b in zip(plain, fast, strict=True))


# Lengths


def test_a_new_length_begins_its_own_order_and_keeps_the_tokens_of_a_step(whole: Whole) -> None:
    s = replace(
        whole.recipes["causal, lengths"],
        task=R.CausalLM(),
        batch=R.FixedBatch(size=6, length=32),
        steps=8,
        length_schedule=((0.5, 16), (1.0, 32)),
    )
    found = steps(whole_runs.build_run(s).trainer, 8)
    assert [e.tokens for e in found] == [192] * 8
    assert [len(e.sample_ids) for e in found] == [12] * 4 + [6] * 4
    assert [e.samples_read for e in found] == [12, 24, 36, 48, 6, 12, 18, 24]
