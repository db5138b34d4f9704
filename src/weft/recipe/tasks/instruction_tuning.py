"""Instruction tuning."""

from ...support.registry import choice, implements
from ..data.conversations import Conversations
from ..data.rows import SourceTargetPairs, TemplatedPairs
from .task import Task


@choice
class InstructionTuning(Task):
    """Predict each next token of an answer, given what was asked: the loss of what the assistant
    says alone (InstructGPT, Ouyang et al. 2022, arXiv:2203.02155, section 3.5; masked as in Wei et
    al. 2021, arXiv:2109.01652).
    """

    name = "instruct"
    row_schemas = (Conversations, SourceTargetPairs, TemplatedPairs)
    hf_class_suffix = "ForCausalLM"
    verb = "generate"


implements(InstructionTuning, "weft.tasks.instruction_tuning:InstructionTuningTask")
