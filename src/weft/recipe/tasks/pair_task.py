"""Base of the tasks that read one or two texts."""

from dataclasses import replace
from typing import Any, ClassVar, Literal

from ...spec import ClassifierHead, HeadTransform, Spec
from ..data.rows import RowSchema
from .task import Task


def pair_style(spec: Spec) -> Literal["bert", "gpt"]:
    """Return how one or two texts are joined, where no recipe says it."""
    return "gpt" if spec.decoder is not None else "bert"


class PairTask(Task):
    """A task whose model reads one or two texts between special tokens, in the format of BERT or
    GPT.
    """

    head = ClassifierHead
    packable = False
    verb: ClassVar[str | None] = "classify"

    @classmethod
    def for_model(cls, spec: Spec, **options: Any) -> Task:
        return cls(**{"input_format": pair_style(spec), **options})

    @classmethod
    def default_head(cls, spec: Spec, labels: tuple[str, ...] | None, dropout: float) -> Any:
        outputs = len(labels or ()) or 1
        if spec.decoder is not None:
            return ClassifierHead(
                num_labels=outputs, labels=labels, dropout=dropout, pooling="last"
            )
        transform = HeadTransform(activation="tanh")
        return ClassifierHead(
            num_labels=outputs, labels=labels, dropout=dropout, transform=transform
        )

    def for_inference(self, rows: RowSchema) -> Task:
        """Return the task without the auxiliary next-token loss, which no prediction needs."""
        plain_task: Task = replace(self, lm_weight=0.0)  # type: ignore[type-var]
        return plain_task
