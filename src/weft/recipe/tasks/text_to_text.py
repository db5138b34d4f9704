"""Text to text."""

from typing import Literal

from ...spec import Probability
from ...support.registry import choice, implements
from ..data.rows import RowSchema, SourceTargetPairs, TemplatedPairs
from .task import TableFacts, Task


@choice
class TextToText(Task):
    """Decode the target text of a source text with the whole encoder-decoder (T5, arXiv:1910.10683,
    section 2.1; BART, arXiv:1910.13461, section 3.4). `input_format`: T5's A </s>, where the
    decoder starts with the padding token, or BART's <s> A </s>, where it starts with </s>.
    """

    name = "text2text"
    row_schemas = (SourceTargetPairs, TemplatedPairs)
    hf_class_suffix = "ForConditionalGeneration"
    verb = "translate"
    metrics = ("exact_match",)
    keeps_decoder = True

    input_format: Literal["t5", "bart"] = "t5"
    label_smoothing: Probability = 0.0

    def source_frame(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return ("bos",) if self.input_format == "bart" else (), ("eos",)

    def decoder_start(self) -> str:
        return "eos" if self.input_format == "bart" else "pad"

    @classmethod
    def matches(cls, table: TableFacts) -> float:
        return 0.1  # only for an encoder-decoder, or with --task

    def select_by(self, rows: RowSchema) -> str:
        """Select by the loss, since generated free text seldom equals its reference."""
        return "loss" if getattr(rows, "labels", None) is None else "exact_match"


implements(TextToText, "weft.tasks.text_to_text:TextToTextTask")
