"""Partial training: which weights are trained."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from ..spec import PositiveFloat, PositiveInt
from ..support.registry import choice, implements


class Trainable:
    """Base of choices of trained weights (without one: all).

    Its implementation is built with (trainable, model, seed) after the body of the model is frozen;
    it may add parameters.
    """

    # False: the body runs in eval mode, without dropout
    trains_body: ClassVar[bool] = True


@choice
class HeadOnly(Trainable):
    """Train a new head on frozen features (BERT, arXiv:1810.04805, section 5.3)."""

    trains_body = False


@choice
class LoRA(Trainable):
    """Low-rank updates W + alpha / rank · B A of attention maps (Hu et al. 2021, arXiv:2106.09685,
    section 4). A, B and the head are trained; export merges B A into W.

    Args:
        rank: the rank of the updates (default: 8).
        alpha: the scale of the updates, divided by rank (default: 16).
        target_modules: the maps to update, of "query", "key", "value" and "out" (default: ("query",
            "value")).
    """

    rank: PositiveInt = 8
    alpha: PositiveFloat = 16.0
    target_modules: Annotated[
        tuple[Literal["query", "key", "value", "out"], ...], Field(min_length=1)
    ] = (
        "query",
        "value",
    )


implements(HeadOnly, "weft.training.trainable:add_nothing")
implements(LoRA, "weft.training.trainable:add_lora")
