"""Conformance of a part: `check_part` raises an AssertionError that names the problem."""

from collections.abc import Callable
from typing import Any

from .. import recipe as R
from .. import spec as S
from .filter import check_filter
from .layer import check_layer, check_pattern
from .model_part import check_head, check_init, check_stem
from .recipe_part import (
    check_average,
    check_batching,
    check_optimiser,
    check_schedule,
    check_trainable,
)
from .transform import check_transform
from .value import calling, check_value

CHECKS: dict[type, Callable[[Any], None]] = {
    S.Head: check_head,
    S.Init: check_init,
    S.PatchStem: check_stem,
    R.OptimiserSpec: check_optimiser,
    R.Schedule: check_schedule,
    R.Batching: check_batching,
    R.WeightAverage: check_average,
    R.Trainable: check_trainable,
    R.Transform: check_transform,
    R.Filter: check_filter,
}


def check_part(part: Any, width: int = 32, tokens: int = 24, heads: int = 4) -> None:
    """Check a part of a model or of a recipe.

    Every part is frozen, compares and hashes by content, and goes to JSON and back. Beyond that:

    - norm, feed-forward, attention, position bias, positions at the input: parameters and FLOPs are
      those that are counted, every parameter is registered and has a role and a gradient, results
      are finite (in bfloat16 too, and for a vector of zeros) and the same each time, and no tensor
      forgets its device;
    - norm, feed-forward: one vector of the same width and type per token, computed from that vector
      alone; the input stays as it is;
    - attention: a row does not depend on its batch, and a pattern that does not look ahead shows no
      later token;
    - position bias, positions at the input: they follow from the positions that are given (with a
      cache, and beside
      padding on the left), not from the slots of the tensor;
    - attention pattern: it looks neither further back nor further ahead than it says, every query
      attends to something,
      and its backend gives what the whole mask gives;
    - head: the same as a layer, on the first small model that takes it, and a row beside longer
      ones as alone;
    - stem of an image model: one vector per `stride` pixels, with the parameters and FLOPs that are
      counted;
    - initialisation: finite, random weights that follow from the seed and the path of each tensor
      alone;
    - optimiser: takes every parameter once, changes it by the learning rate and weight decay of its
      group, and resumes
      bit for bit from its state;
    - schedule: a pure function of the step, finite and not negative;
    - batching: each sample once per epoch, rows that fit, steps that depend on their position
      alone;
    - weight average: holds the weights that are trained, and resumes bit for bit;
    - trainable: the body is frozen, the head is trained, and new parameters follow from the seed;
    - transform: decided by its generator alone, boxes stay inside and surround the same objects,
      and nothing is random
      in evaluation;
    - filter: a pure function of the text that returns a reason, or keys.

    Args:
        part: the value.
        width: of the model that a layer is built for.
        tokens: length of the sequence that a layer is tried with.
        heads: number of attention heads, for a bias or a pattern.

    Raises:
        AssertionError: one line that names the part and what it does not keep; an exception of the
            part itself is its cause.
    """
    with calling(type(part).__name__):
        for base, check in CHECKS.items():
            if isinstance(part, base):
                check(part)
                return
        check_value(part)
        if isinstance(part, S.Pattern):
            check_pattern(part, tokens)
            part = S.Attention(heads=heads, pattern=part)
        elif isinstance(part, S.PositionBias):
            check_layer(part, heads, tokens)
            part = S.Attention(heads=heads, position_bias=part)
        check_layer(part, width, tokens)
