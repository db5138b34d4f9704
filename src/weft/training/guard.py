"""The loss guard: skips bad steps, as a pure function of the loss, the gradient norm and earlier
losses.
"""

from math import isfinite, sqrt
from typing import Any

from .. import recipe as R


class LossGuardState:
    """The state of the guard. Checkpoints include it, so that a resumed run makes the same
    decisions.
    """

    def __init__(self, guard: R.LossGuard) -> None:
        self.s = guard
        self.recent: list[float] = []  # losses of the most recent steps, without skipped ones
        self.skipped: list[dict[str, Any]] = []

    def reason_to_skip(self, loss: float, norm: float) -> str | None:
        if not isfinite(loss):
            return f"the loss is {loss}"
        if not isfinite(norm):
            return f"the gradient norm is {norm}"
        if self.s.spike_deviations is not None and len(self.recent) == self.s.window:
            mean = sum(self.recent) / len(self.recent)
            deviation = sqrt(sum((x - mean) ** 2 for x in self.recent) / len(self.recent))
            if loss > mean + self.s.spike_deviations * deviation:
                return (
                    f"the loss {loss:.4g} is more than {self.s.spike_deviations:g} deviations "
                    f"above {mean:.4g}, the mean of {self.s.window}"
                )
        return None

    def record_loss(self, loss: float) -> None:
        if self.s.spike_deviations is not None:
            self.recent = [*self.recent[1 - self.s.window :], loss] if self.s.window > 1 else [loss]

    def record_skip(self, what: dict[str, Any]) -> None:
        self.skipped.append(what)

    def check_budget(self) -> None:
        """Raise if more steps were skipped than the recipe allows."""
        if len(self.skipped) > self.s.max_skipped_steps:
            what = self.skipped[-1]
            raise RuntimeError(
                f"{len(self.skipped)} steps were skipped, the last, step {what['step']}, because "
                f"{what['reason']}; "
                f"guard.max_skipped_steps allows {self.s.max_skipped_steps}; log.jsonl names the "
                "samples; to continue, --set guard.max_skipped_steps=N"
            )

    def check_weights(self, step: int, largest: float) -> None:
        """Stop a run whose weights became non-finite: they can be neither used nor restored, and
        must not be saved.
        """
        if not isfinite(largest):
            raise RuntimeError(
                f"the update of step {step} made the weights non-finite ({largest}) although loss "
                "and gradient are finite; "
                "the update is not saved; lower the learning rate and start a new run from the "
                "last checkpoint"
            )

    def state(self) -> dict[str, Any]:
        return {"recent": self.recent, "skipped": self.skipped}

    def restore(self, state: dict[str, Any]) -> None:
        self.recent = list(state["recent"])
        self.skipped = list(state["skipped"])
