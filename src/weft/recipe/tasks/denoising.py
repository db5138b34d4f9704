"""Denoising of texts."""

from ...spec import PositiveFloat, Probability
from ...support.registry import choice, implements
from .task import Task


@choice
class Denoising(Task):
    """Reconstruct a text whose spans are infilled and whose sentences are shuffled (BART,
    arXiv:1910.13461, section 2.2).
    """

    hf_class_suffix = "ForConditionalGeneration"

    mask_rate: Probability = 0.3
    mean_span_length: PositiveFloat = 3.0  # of the Poisson span lengths
    shuffle_sentences: bool = True

    def source_frame(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return ("bos",), ("eos",)

    def decoder_start(self) -> str:
        return "eos"


implements(Denoising, "weft.tasks.denoising:DenoisingTask")
