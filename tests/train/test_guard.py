"""The guard: what it refuses, what it remembers, when it ends a run."""

from math import inf, nan

import pytest

from weft import recipe as R
from weft.training.guard import LossGuardState


@pytest.mark.parametrize(("loss", "norm"), [(nan, 1.0), (inf, 1.0), (1.0, nan), (1.0, inf)])
def test_what_is_not_finite_is_refused(loss: float, norm: float) -> None:
    assert LossGuardState(R.LossGuard()).reason_to_skip(loss, norm)
    assert LossGuardState(R.LossGuard()).reason_to_skip(1.0, 1.0) is None


def test_a_spike_is_judged_by_the_last_losses_and_only_once_there_are_enough() -> None:
    guard = LossGuardState(R.LossGuard(spike_deviations=6.0, window=4))
    for loss in (2.0, 2.1, 1.9):
        assert guard.reason_to_skip(50.0, 1.0) is None
        guard.record_loss(loss)
    guard.record_loss(2.0)
    assert guard.reason_to_skip(50.0, 1.0)
    assert guard.reason_to_skip(2.2, 1.0) is None
    for _ in range(10):
        guard.record_loss(2.0)
    assert len(guard.recent) == 4


def test_a_restored_guard_decides_the_same() -> None:
    guard, other = (
        LossGuardState(R.LossGuard(spike_deviations=3.0, window=3)),
        LossGuardState(R.LossGuard(spike_deviations=3.0, window=3)),
    )
    for loss in (1.0, 1.2, 1.1, 1.3):
        guard.record_loss(loss)
    other.restore(guard.state())
    for loss in (1.2, 1.5, 1.7, 9.0):
        assert (guard.reason_to_skip(loss, 1.0) is None) == (
            other.reason_to_skip(loss, 1.0) is None
        )


def test_more_refusals_than_the_budget_end_the_run() -> None:
    guard = LossGuardState(R.LossGuard(max_skipped_steps=2))
    for step in (1, 2):
        guard.record_skip({"step": step, "reason": "why", "samples": []})
    guard.check_budget()
    guard.record_skip({"step": 3, "reason": "why", "samples": []})
    with pytest.raises(RuntimeError, match="allows 2"):
        guard.check_budget()
