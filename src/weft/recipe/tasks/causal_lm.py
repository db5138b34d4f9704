"""Causal language modelling."""

from ...support.registry import choice, implements
from .task import Task


@choice
class CausalLM(Task):
    """Predict each next token (Radford et al. 2018)."""

    name = "perplexity"
    hf_class_suffix = "ForCausalLM"
    verb = "generate"

    isolate_documents: bool = False  # tokens attend only within their own document
    one_document_per_sample: bool = (
        False  # a sample is a truncated document, not a window: for PackedBatch and TokenBudget
    )


implements(CausalLM, "weft.tasks.causal_lm:CausalLMTask")
