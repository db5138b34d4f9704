"""Steps that must not be taken: a pure decision from the loss, the gradient's norm and the losses before."""
from math import isfinite, sqrt
from typing import Any

from .. import recipe as R


class Guard:
    """Its memory goes into the checkpoint, so that a resumed run decides the same."""

    def __init__(self, s: R.Guard) -> None:
        self.s = s
        self.recent: list[float] = []      # the losses of the last steps that were taken
        self.refused: list[dict[str, Any]] = []

    def problem(self, loss: float, norm: float) -> str | None:
        if not isfinite(loss):
            return f"the loss is {loss}"
        if not isfinite(norm):
            return f"the gradient's norm is {norm}"
        if self.s.spike is not None and len(self.recent) == self.s.window:
            mean = sum(self.recent) / len(self.recent)
            deviation = sqrt(sum((x - mean) ** 2 for x in self.recent) / len(self.recent))
            if loss > mean + self.s.spike * deviation:
                return f"the loss {loss:.4g} is more than {self.s.spike:g} deviations above {mean:.4g}, the mean of {self.s.window}"
        return None

    def accept(self, loss: float) -> None:
        if self.s.spike is not None:
            self.recent = [*self.recent[1 - self.s.window:], loss] if self.s.window > 1 else [loss]

    def refuse(self, what: dict[str, Any]) -> None:
        self.refused.append(what)

    def judge(self) -> None:
        """Ends a run that was refused too many steps."""
        if len(self.refused) > self.s.budget:
            what = self.refused[-1]
            raise RuntimeError(f"{len(self.refused)} steps were refused, the last, step {what['step']}, because {what['reason']}; "
                               f"guard.budget allows {self.s.budget}; log.jsonl names the samples; to go on after all, --set guard.budget")

    def weights(self, step: int, largest: float) -> None:
        """Ends a run whose weights an update made non-finite: they can be neither used nor undone, and must not be saved."""
        if not isfinite(largest):
            raise RuntimeError(f"the update of step {step} made the weights non-finite ({largest}) although loss and gradient are finite; "
                               "nothing of it is saved; lower the learning rate and continue from the last checkpoint in another run")

    def state(self) -> dict[str, Any]:
        return {"recent": self.recent, "refused": self.refused}

    def restore(self, state: dict[str, Any]) -> None:
        self.recent, self.refused = list(state["recent"]), list(state["refused"])
