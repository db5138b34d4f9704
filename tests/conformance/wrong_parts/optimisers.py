"""Optimisers and schedules with one fault each."""

import torch

import weft
from weft.testing import check_optimiser, check_schedule

CALLS = []


@weft.register
class OwnMomentum(weft.OptimiserSpec):
    """Gradient descent with momentum and decoupled weight decay."""

    states_per_parameter = 1.0
    lr: weft.spec.PositiveFloat = 0.01
    weight_decay: weft.spec.Probability = 0.1
    fault: str = ""


class OwnMomentumOptimizer(torch.optim.Optimizer):
    def __init__(self, groups, value):
        super().__init__(groups, {"lr": value.lr, "weight_decay": 0.0})
        self.value = value
        self.velocity = {}

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            lr = self.value.lr if self.value.fault == "own rate" else group["lr"]
            all_alike = self.value.fault == "decays all"
            decay = self.value.weight_decay if all_alike else group["weight_decay"]
            for p in group["params"]:
                # what is not in `state` is not in a checkpoint
                hidden = self.value.fault == "hidden state"
                state = self.velocity.setdefault(id(p), {}) if hidden else self.state[p]
                if "velocity" not in state:
                    state["velocity"] = torch.zeros_like(p)
                state["velocity"].mul_(0.9).add_(p.grad)
                p.mul_(1 - lr * decay).sub_(lr * state["velocity"])


@weft.implements(OwnMomentum)
def build_own_momentum(value, parameters):
    yield OwnMomentumOptimizer(parameters.groups(value), value)


@weft.register
class OwnSchedule(weft.Schedule):
    """1 / √step."""

    fault: str = ""

    def scale(self, step, steps):
        if self.fault == "counts calls":
            # a run that resumes starts to count again
            CALLS.append(step)
            return len(CALLS) ** -0.5
        if self.fault == "last step":
            return 1 / (steps - 1 - step)
        return (1 + step) ** -0.5


def check(fault):
    check_optimiser(OwnMomentum(fault=fault))
    check_schedule(OwnSchedule(fault=fault))
