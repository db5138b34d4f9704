"""Rates as pure functions of the step: nothing to save, nothing to get out of step."""
from math import ceil, cos, pi

from .. import recipe as R


def scale(s: R.Schedule, step: int, steps: int) -> float:
    """The share of the peak rate for the update that follows `step` finished ones."""
    if step < s.warmup:
        return (step + 1) / s.warmup
    if isinstance(s, R.InverseRoot):
        return float((s.warmup / (step + 1)) ** 0.5)
    if isinstance(s, R.Constant):
        return 1.0
    begin = max(s.warmup, steps - ceil(s.decay * steps)) if isinstance(s, R.WarmupStableDecay) else s.warmup
    done = max(step - begin, 0) / max(steps - begin, 1)
    left = (1 + cos(pi * done)) / 2 if isinstance(s, R.Cosine) else 1 - done
    return s.end + (1 - s.end) * left
