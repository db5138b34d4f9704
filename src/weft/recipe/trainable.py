"""Which weights are trained."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from ..spec import PositiveFloat, PositiveInt
from ..support.registry import choice, implements


class Trainable:
    """Base of what is trained, where not everything is.

    Built with (trainable, model, seed) once the body of the model is frozen; it may add parameters
    of its own.
    """

    trains_body: ClassVar[bool] = True  # False: the body gives features and drops nothing


@choice
class HeadOnly(Trainable):
    """Train a new head on frozen features (BERT, arXiv:1810.04805, section 5.3)."""

    trains_body = False


@choice
class LoRA(Trainable):
    """LoRA: W + alpha / rank · B A for maps of the attention layers. A, B and the head are trained;
    the exported model has B A merged into W (Hu et al. 2021, arXiv:2106.09685, section 4).
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
