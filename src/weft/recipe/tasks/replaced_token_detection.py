"""Replaced token detection."""

from ...spec import PositiveFloat, PositiveFraction, Spec, TokenClassifierHead
from ...support.registry import choice, implements
from .task import Task


@choice
class ReplacedTokenDetection(Task):
    """Classify each token as original or replaced by a small generator (ELECTRA,
    arXiv:2003.10555).
    """

    head = TokenClassifierHead
    hf_class_suffix = "ForPreTraining"

    generator: Spec
    mask_rate: PositiveFraction = 0.15
    discriminator_weight: PositiveFloat = 50.0

    def extra_models(self) -> tuple[Spec, ...]:
        return (self.generator,)

    def scored_fraction(self) -> float:
        return self.mask_rate

    def base_rate(self) -> float | None:
        """Return the share of replaced tokens: a generator at its start hardly ever draws the
        original.
        """
        # below 1, so that its log-odds are finite
        return min(self.mask_rate, 0.99)


implements(ReplacedTokenDetection, "weft.tasks.replaced_token_detection:ReplacedTokenDetectionTask")
