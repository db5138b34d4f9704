"""A schedule of one's own: level, then 1 - √(share of the cooldown) (Hägele et al. 2024,
arXiv:2405.18392, section 3).

weft train RECIPE --code examples/extend/sqrt_cooldown.py --set schedule=SqrtCooldown
"""

import weft


@weft.register
class SqrtCooldown(weft.Schedule):
    """Up in `warmup` steps, level, and down over the last `cooldown` of the steps."""

    warmup: weft.spec.NonNegativeInt = 0
    cooldown: weft.spec.PositiveFraction = 0.2

    def scale(self, step: int, steps: int) -> float:
        if step < self.warmup:
            return (step + 1) / self.warmup
        begin = (1 - self.cooldown) * steps
        return 1.0 if step < begin else 1 - ((step - begin) / (steps - begin)) ** 0.5
