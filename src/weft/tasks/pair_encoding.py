"""One or two texts between special tokens, cut to a length."""

from typing import TYPE_CHECKING, Any

import numpy as np

from .. import recipe as R
from ..data.tokenizer import SpecialTokenFrame
from .base import ArrayRow, TaskContext, check_model, concatenate_ids, has_token_types, special_ids

if TYPE_CHECKING:
    from ..data.store import Store


class PairEncoding:
    """One row of one or two texts, begin A end [B end]; between RoBERTa's are two ends. BERT's has segments where a model does; GPT's
    start, delimiter and extract tokens are the same marks, without segments. A decoder's end may be its only mark, and begins too; T5
    has none that begins."""

    def __init__(self, task: Any, context: TaskContext, style: str = "bert") -> None:
        decodes = context.spec.decoder is not None
        check_model(task, context, encoder=not decodes, decoder=decodes, head=None)
        placed = not decodes and isinstance(
            task, R.TokenClassification | R.QuestionAnswering
        )  # their labels count on a first mark
        (end, *_), known = (
            special_ids(task, context, "eos", *["bos"] * placed),
            context.data.special_tokens,
        )
        self.begin, self.end = [known["bos"]] if "bos" in known else [end] * decodes, [end]
        self.between = [
            end,
            *([known["extra_sep"]] if "extra_sep" in known and not decodes else []),
        ]
        self.marks = SpecialTokenFrame(self.begin, self.end, self.between)
        self.segments = style == "bert" and any(
            has_token_types(m.spec) for m in (context, context.teacher) if m is not None
        )

    def __call__(self, first: np.ndarray, second: np.ndarray | None, length: int) -> ArrayRow:
        """The longer text is cut first."""
        if second is None:
            parts: list[Any] = [self.begin, first[: length - len(self.begin) - 1], self.end]
        else:
            first, second = self.cut(first, second, length)
            parts = [self.begin, first, self.between, second, self.end]
        tokens, later = concatenate_ids(*parts), self.second_text_start(first)
        return {"tokens": tokens} | (
            {"segments": (np.arange(len(tokens)) >= later).astype(np.int64)}
            if self.segments
            else {}
        )

    def cut(
        self, first: np.ndarray, second: np.ndarray, length: int
    ) -> tuple[np.ndarray, np.ndarray]:
        return truncate_longest_first(
            first, second, length - len(self.begin) - len(self.between) - 1
        )

    def second_text_start(self, first: np.ndarray) -> int:
        """Where the second text starts."""
        return len(self.begin) + len(first) + len(self.between)

    def fields(self, pad: int, stream: str = "tokens", **names: str) -> dict[str, tuple[str, int]]:
        fields = {"tokens": (stream, pad)} | ({"segments": (stream, 0)} if self.segments else {})
        return {names.get(name, name): field for name, field in fields.items()}

    def table(self, store: "Store", length: int, *columns: str) -> Any:
        from ..data.samples import RowSamples

        if length < 5:
            raise ValueError(
                f"length = {length} leaves no room for texts beside three marks; give more"
            )
        return RowSamples(
            store,
            columns,
            extra_tokens=len(self.begin) + 1 + len(self.between) * (len(columns) > 1),
        )


def truncate_longest_first(
    first: np.ndarray, second: np.ndarray, capacity: int
) -> tuple[np.ndarray, np.ndarray]:
    """The longer loses its last token until both fit; of two equal ones, the second."""
    n, m = len(first), len(second)
    return first[: max(capacity - m, capacity - capacity // 2)], second[
        : max(capacity - n, capacity // 2)
    ]
