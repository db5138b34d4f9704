"""Masked language modelling."""

from dataclasses import replace
from typing import Literal

from ...spec import Fraction, PositiveFraction
from ...support.registry import choice, implements
from ..data.rows import Documents, RowSchema
from .task import Task


@choice
class MaskedLM(Task):
    """Predict masked tokens (BERT, arXiv:1810.04805, section 3.1), in one of four input formats
    (RoBERTa, arXiv:1907.11692, section
    4.2)."""

    name = "fill"
    hf_class_suffix = "ForMaskedLM"
    verb = "fill"

    mask_rate: PositiveFraction = 0.15
    mask_token_rate: Fraction = 0.8  # of the chosen tokens
    random_token_rate: Fraction = (
        0.1  # of the chosen tokens; the rest stay (BERT, appendix C.2, compares six such rows)
    )
    masking_unit: Literal["tokens", "words", "spans"] = (
        "tokens"  # spans: SpanBERT, arXiv:1907.10529
    )
    static_mask: bool = False  # the same mask in every epoch: BERT's static masking
    input_format: Literal["segment-pair", "sentence-pair", "full-sentences", "doc-sentences"] = (
        "full-sentences"
    )
    next_sentence: bool = False  # NSP, for the two pair inputs

    @classmethod
    def default_rows(cls) -> RowSchema:
        return Documents(sentence_boundaries=True)

    def for_inference(self, rows: RowSchema) -> Task:
        """Return the task without next-sentence prediction, whose head is discarded after
        training.
        """
        return replace(self, next_sentence=False)

    def scored_fraction(self) -> float:
        return self.mask_rate


implements(MaskedLM, "weft.tasks.masked_lm:MaskedLMTask")
