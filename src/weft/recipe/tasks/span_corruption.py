"""Span corruption."""

from ...spec import PositiveFloat, PositiveFraction
from ...support.registry import choice, implements
from .task import Task


@choice
class SpanCorruption(Task):
    """Decode the spans that sentinels replaced (T5, arXiv:1910.10683, section 3.3.4)."""

    hf_class_suffix = "ForConditionalGeneration"

    mask_rate: PositiveFraction = 0.15
    mean_span_length: PositiveFloat = 3.0

    def decoder_start(self) -> str:
        return "pad"

    def decoder_ratio(self) -> float:
        return self.mask_rate


implements(SpanCorruption, "weft.tasks.span_corruption:SpanCorruptionTask")
