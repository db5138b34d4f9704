"""Every registered part passes the public conformance checks."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from weft import recipe as R
from weft import spec as S
from weft.nn.layers.measure import forward_flops, parameter_shapes
from weft.nn.layers.roles import Role, with_role
from weft.support.registry import (
    CHOICES,
    IMPLEMENTATIONS,
    choice,
    implementation,
    implements,
    members,
)
from weft.testing import check_optimiser, check_part, check_schedule, check_value

PARTS: list[Any] = [
    S.LayerNorm(),
    S.LayerNorm(bias=False),
    S.RMSNorm(),
    S.MLP(hidden=48),
    S.MLP(hidden=48, bias=False, activation="relu"),
    S.GatedMLP(hidden=48),
    S.MixtureOfExperts(experts=4, top_k=2, expert=S.GatedMLP(hidden=16)),
    S.MixtureOfExperts(experts=3, top_k=1, expert=S.MLP(hidden=16), softmax_over="all"),
    S.RelativeBias(buckets=8, max_distance=20),
    S.ALiBi(),
    S.SinusoidalPositions(),
    S.LearnedPositions(count=64, offset=2),
    S.FullAttention(),
    S.CausalAttention(),
    S.SlidingWindow(before=5, after=0),
    S.SlidingWindow(before=3, after=2),
    S.Linformer(length=64, rank=6),
    S.ShiftedWindows(size=3, shift=1),
    S.Attention(heads=4, kv_heads=2, head_dim=6, value_dim=10, bias=False),
    S.Attention(heads=4, qk_norm=S.QKNorm(), softcap=20.0),
    S.Attention(heads=4, qk_norm=S.QKNorm(norm=S.LayerNorm(), per="projection")),
]
OPTIMISERS: list[R.OptimiserSpec] = [
    R.AdamW(lr=1e-3, layer_decay=0.8),
    R.Adam(lr=1e-3),
    R.Adafactor(lr=1e-2),
    R.SGD(lr=1e-2),
    R.Muon(lr=1e-2, other=R.AdamW(lr=1e-3)),
]
SCHEDULES: list[R.Schedule] = [
    R.ConstantSchedule(warmup_steps=3),
    R.LinearSchedule(warmup_steps=7, final_fraction=0.1),
    R.CosineSchedule(warmup_steps=7),
    R.InverseSqrt(warmup_steps=11),
    R.WarmupStableDecay(warmup_steps=5),
]


def name(value: Any) -> str:
    return repr(value)[:40]


@pytest.mark.parametrize("base", [S.Norm, S.Inner, S.PositionBias, S.InputPositions, S.Pattern])
def test_every_part_is_tried(base: type) -> None:
    ours = {cls for cls in members(base) if cls.__module__.startswith("weft.spec")}
    assert {type(part) for part in PARTS if isinstance(part, base)} == ours


def test_every_optimiser_and_schedule_is_tried() -> None:
    for base, tried in ((R.OptimiserSpec, OPTIMISERS), (R.Schedule, SCHEDULES)):
        ours = {cls for cls in members(base) if cls.__module__.startswith("weft.recipe")}
        assert {type(value) for value in tried} == ours


@pytest.mark.parametrize("part", PARTS, ids=name)
def test_our_parts_conform(part: Any) -> None:
    check_part(part, width=32, tokens=36)


@pytest.mark.parametrize("optimiser", OPTIMISERS, ids=name)
def test_our_optimisers_conform(optimiser: R.OptimiserSpec) -> None:
    check_optimiser(optimiser)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=name)
def test_our_schedules_conform(schedule: R.Schedule) -> None:
    check_schedule(schedule)


@pytest.mark.parametrize(
    "part", [p for p in PARTS if isinstance(p, S.Norm | S.FeedForwardSpec)], ids=name
)
def test_formulas_and_measured_counts_agree(part: Any) -> None:
    assert dict(parameter_shapes(part, 32)) == dict(part.shapes(32))
    formula = part.flops(32, 24) if isinstance(part, S.Norm) else part.flops(32, 24, 24, 0)
    assert forward_flops(part, 32, 24) == formula


# Parts that break a promise are found


class GainLayer(nn.Module):
    def __init__(self, norm: Any, width: int) -> None:
        super().__init__()
        self.fault = norm.fault
        self.weight = nn.Parameter(torch.ones(width))
        if norm.fault == "unused":
            self.spare = nn.Parameter(torch.ones(width))
        if norm.fault != "role":
            with_role(self, Role.NORM)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.fault == "device":
            return x * self.weight + torch.ones(x.shape[-1], device="cpu")
        if self.fault == "random":
            return x * self.weight * torch.rand(())
        return x * self.weight / (0.0 if self.fault == "infinite" else 1.0)


@pytest.fixture
def own() -> Iterator[dict[str, Any]]:
    """Parts of one's own, registered for one test alone."""
    before = dict(CHOICES)

    @choice
    class Gain(S.Norm):
        fault: str = "none"

    implements(Gain)(GainLayer)

    @choice
    class Falls(R.Schedule):
        def scale(self, step: int, steps: int) -> float:
            return 1.0 - step / 10

    @choice
    class Unbuilt(S.Norm):
        pass

    yield {name: CHOICES[name] for name in CHOICES if name not in before}
    for name in [name for name in CHOICES if name not in before]:
        IMPLEMENTATIONS.pop(CHOICES.pop(name), None)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("unused", "no gradient reaches spare"),
        ("role", "has no role for weight"),
        ("random", "not deterministic in eval mode"),
        ("infinite", "not finite"),
    ],
)
def test_a_broken_part_is_found(own: dict[str, Any], fault: str, words: str) -> None:
    check_part(own["Gain"]())
    with pytest.raises(AssertionError, match=words):
        check_part(own["Gain"](fault=fault))


def test_a_part_that_forgets_the_device_is_found(own: dict[str, Any]) -> None:
    with pytest.raises(AssertionError, match="device"):
        check_part(own["Gain"](fault="device"))


def test_a_schedule_below_zero_is_found(own: dict[str, Any]) -> None:
    with pytest.raises(AssertionError, match="less than 0"):
        check_schedule(own["Falls"]())


def test_a_value_that_is_not_registered_is_found() -> None:
    with pytest.raises(AssertionError, match="not registered"):
        check_value(nn.Linear(1, 1))


def test_a_part_without_an_implementation_says_what_to_do(own: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"@weft.implements\(Unbuilt\)"):
        implementation(own["Unbuilt"]())


def test_a_part_of_ones_own_is_counted_in_a_whole_model(own: dict[str, Any]) -> None:
    norm = S.LayerNorm()
    attention = S.Attention(heads=2, pattern=S.CausalAttention())

    def decoder(before: S.Norm) -> S.Spec:
        block = S.Block(
            attention=S.pre_norm(before, attention),
            feedforward=S.pre_norm(norm, S.MLP(hidden=16)),
        )
        stack = S.Stack(blocks=(block, block))
        return S.Spec(width=8, source=S.Tokens(vocab_size=11), head=S.LMHead(), decoder=stack)

    theirs = decoder(own["Gain"]())
    ours = decoder(norm)
    assert theirs.parameter_count() == ours.parameter_count() - 2 * 8
    assert theirs.flops(length=10) == ours.flops(length=10)
