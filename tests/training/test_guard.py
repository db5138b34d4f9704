"""The loss guard: skipped steps, saved state, and the end of a run."""

from weft import recipe as R
from weft.training.guard import LossGuardState


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
