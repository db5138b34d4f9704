"""Random combinations of all axes of the spec satisfy all invariants."""

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, seed, settings

import weft
from weft import spec as S

from . import draw
from .invariants import EXCEPTIONS, INVARIANTS

COUNT = {"encoder": 100, "decoder": 100, "both": 90, "patches": 80, "backbone": 40}


def hold(s: S.Spec) -> None:
    model = weft.build(s, seed=1, dtype=torch.float64).eval()
    for name, invariant in INVARIANTS.items():
        excused, _ = EXCEPTIONS.get(name, (lambda _: False, ""))
        if excused(s):
            continue
        try:
            with torch.set_grad_enabled("gradient" in name):
                invariant(model, s)
        except Exception as error:
            raise AssertionError(f"{name}: {error!r} for {s!r}") from error


def sweep(kind: str, number: int, count: int, shrink: bool) -> None:
    phases = [Phase.generate, Phase.shrink] if shrink else [Phase.generate]

    @seed(number)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=phases,
        suppress_health_check=list(HealthCheck),
    )
    @given(draw.models[kind])
    def run(s: S.Spec) -> None:
        hold(s)

    run()


@pytest.mark.parametrize("kind", draw.models)
def test_every_combination_holds_every_invariant(kind: str, unshrunk: bool) -> None:
    """102 specs, the same at every commit."""
    sweep(kind, 0, COUNT[kind] // 4, not unshrunk)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(1, 13))
@pytest.mark.parametrize("kind", draw.models)
def test_more_combinations_hold_every_invariant(kind: str, number: int, unshrunk: bool) -> None:
    """410 other specs per number, 4,920 in all."""
    sweep(kind, number, COUNT[kind], not unshrunk)
