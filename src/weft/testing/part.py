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

    Every part must be frozen, compare and hash by content, and survive a JSON round trip. In
    addition:

    - norm, feed-forward, attention, position bias, positions at the input: parameters and FLOPs
      match the declared counts, every parameter is registered and has a role and a gradient,
      results are finite (also in bfloat16 and for a vector of zeros) and deterministic, and every
      tensor is created on the right device;
    - norm, feed-forward: one vector of the same width and type per token, computed from that vector
      only; the input is not modified;
    - attention: a row does not depend on its batch, and a pattern that does not look ahead shows no
      later token;
    - position bias, positions at the input: they are determined by the given positions (also with a
      cache and left padding), not by tensor indices;
    - attention pattern: it respects its declared reach and causality, every query attends to a key,
      and its backend matches the full mask;
    - head: as for a layer, on the first compatible small model; a row gives the same result alone
      and in a batch with longer rows;
    - stem of an image model: one vector per `stride` pixels, with the declared parameters and
      FLOPs;
    - initialisation: finite, random weights, determined by the seed and the path of each tensor;
    - optimiser: takes every parameter once, changes it by the learning rate and weight decay of its
      group, and resumes bit for bit from its state;
    - schedule: a pure function of the step, finite and not negative;
    - batching: each sample once per epoch, rows within the length, steps that depend only on their
      position;
    - weight average: holds the trained weights, and resumes bit for bit;
    - trainable: the body is frozen, the head is trained, and new parameters are determined by the
      seed;
    - transform: determined by its generator, boxes stay inside the image and surround the same
      objects, and evaluation is deterministic;
    - filter: a pure function of the text that returns a reason, or keys.

    Args:
        part: the value.
        width: width of the model for which a layer is built.
        tokens: length of the test sequence.
        heads: number of attention heads, for a bias or a pattern.

    Raises:
        AssertionError: with the part and the violated condition in one line; an exception of the
            part is its cause.
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
