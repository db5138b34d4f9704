"""Token classification."""

from typing import Any

from ...spec import Spec, TokenClassifierHead
from ...support.registry import choice, implements
from ..data.rows import TaggedWords
from .task import TableFacts, Task


@choice
class TokenClassification(Task):
    """Predict a tag for the first piece of every word (BERT, section 5.3)."""

    name = "tag"
    row_schemas = (TaggedWords,)
    head = TokenClassifierHead
    hf_class_suffix = "ForTokenClassification"
    verb = "tag"
    metrics = ("f1", "accuracy")

    @classmethod
    def matches(cls, table: TableFacts) -> float:
        return 3.0 if table.lists >= 2 else 0.1

    @classmethod
    def default_head(cls, spec: Spec, labels: tuple[str, ...] | None, dropout: float) -> Any:
        return TokenClassifierHead(
            num_labels=len(labels or ()) or 1, labels=labels, dropout=dropout
        )


implements(TokenClassification, "weft.tasks.token_classification:TokenClassificationTask")
