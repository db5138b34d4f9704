"""Every axis of the table with every other: random specs, all invariants."""

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings

import weft
from weft import spec as S

from . import draw
from .invariants import EXCEPTIONS, INVARIANTS

COUNT = {"encoder": 100, "decoder": 100, "both": 90, "patches": 80, "backbone": 40}  # 410 a run


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


def sweep(kind: str, times: int, shrink: bool) -> None:
    phases = [Phase.generate, Phase.shrink] if shrink else [Phase.generate]

    @settings(
        max_examples=COUNT[kind] * times,
        deadline=None,
        database=None,
        derandomize=times == 1,
        phases=phases,
        suppress_health_check=list(HealthCheck),
    )
    @given(draw.models[kind])
    def run(s: S.Spec) -> None:
        hold(s)

    run()


@pytest.mark.timeout(5400)
@pytest.mark.parametrize("kind", draw.models)
def test_every_combination_holds_every_invariant(kind: str, long: bool, unshrunk: bool) -> None:
    """410 specs a run; with --long 5,330, drawn anew."""
    sweep(kind, 13 if long else 1, not unshrunk)
