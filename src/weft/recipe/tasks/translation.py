"""Translation."""

from ...spec import Probability
from ...support.registry import choice, implements
from ..data.rows import SourceTargetPairs
from .task import Task


@choice
class Translation(Task):
    """Decode the target of a source, with label smoothing (Vaswani et al. 2017, section 5.4)."""

    name = "translate"
    row_schemas = (SourceTargetPairs,)
    hf_class_suffix = "ForConditionalGeneration"
    verb = "translate"

    label_smoothing: Probability = 0.1
    bpe_dropout: Probability = (
        0.0  # probability of leaving out a merge of BPE (BPE-dropout, arXiv:1910.13267)
    )


implements(Translation, "weft.tasks.translation:TranslationTask")
