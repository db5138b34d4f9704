"""One or two texts between special tokens, truncated to a length."""

from typing import TYPE_CHECKING, Any

import numpy as np

from .. import recipe as R
from ..data.tokenizer import SpecialTokenFrame
from .base import ArrayRow, TaskContext, check_model, concatenate_ids, has_token_types, special_ids

if TYPE_CHECKING:
    from ..data.store import Store


class PairEncoding:
    """One row of one or two texts: bos A eos [B eos]; RoBERTa has two eos tokens between them.

    BERT's format has token types where the model does. GPT's start, delimiter and extract tokens take the same places, without token
    types. A decoder may have eos alone, which then also starts the row; T5 has no token at the start."""

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
        self.frame = SpecialTokenFrame(self.begin, self.end, self.between)
        self.segments = style == "bert" and any(
            has_token_types(m.spec) for m in (context, context.teacher) if m is not None
        )

    def __call__(self, first: np.ndarray, second: np.ndarray | None, length: int) -> ArrayRow:
        """Join the texts; the longer one is truncated first."""
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
        """Return the position at which the second text starts."""
        return len(self.begin) + len(first) + len(self.between)

    def fields(self, pad: int, stream: str = "tokens", **names: str) -> dict[str, tuple[str, int]]:
        fields = {"tokens": (stream, pad)} | ({"segments": (stream, 0)} if self.segments else {})
        return {names.get(name, name): field for name, field in fields.items()}

    def table(self, store: "Store", length: int, *columns: str) -> Any:
        from ..data.samples import RowSamples

        if length < 5:
            raise ValueError(
                f"length = {length} leaves no room for texts beside three special tokens; use longer rows"
            )
        return RowSamples(
            store,
            columns,
            extra_tokens=len(self.begin) + 1 + len(self.between) * (len(columns) > 1),
        )


def truncate_longest_first(
    first: np.ndarray, second: np.ndarray, capacity: int
) -> tuple[np.ndarray, np.ndarray]:
    """Truncate the longer text, token by token, until both fit; of two equally long texts, the second."""
    n, m = len(first), len(second)
    return first[: max(capacity - m, capacity - capacity // 2)], second[
        : max(capacity - n, capacity // 2)
    ]
