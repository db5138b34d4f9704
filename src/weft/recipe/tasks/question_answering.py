"""Answers as spans of a context."""

from typing import Any

from ...spec import SpanHead, Spec
from ...support.registry import choice, implements
from ..data.rows import ContextQuestions
from .task import TableFacts, Task


@choice
class QuestionAnswering(Task):
    """Predict where an answer starts and ends; no answer is the first token (BERT, section 4.3)."""

    name = "answer"
    row_schemas = (ContextQuestions,)
    file_format = "squad"
    head = SpanHead
    hf_class_suffix = "ForQuestionAnswering"
    verb = "answer"
    metrics = ("f1", "exact_match")
    packable = False

    @classmethod
    def matches(cls, table: TableFacts) -> float:
        return 4.0 if table.format == cls.file_format else 0.1

    @classmethod
    def default_head(cls, spec: Spec, labels: tuple[str, ...] | None, dropout: float) -> Any:
        return SpanHead()


implements(QuestionAnswering, "weft.tasks.question_answering:QuestionAnsweringTask")
