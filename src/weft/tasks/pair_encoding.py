"""Encoding of one or two texts with special tokens, truncated to a length."""

from typing import Any

import numpy as np

from .. import recipe as R
from ..data.shards.store import Store
from ..data.tokenizing.tokenizer import SpecialTokenFrame
from .base import ArrayRow, TaskContext, check_model, concatenate_ids, has_token_types, special_ids


class PairEncoding:
    """One row of one or two texts: bos A eos [B eos]; RoBERTa has two eos tokens between them.

    BERT's format has token types where the model does. GPT's start, delimiter and extract tokens
    take the same positions, without token types. For a decoder with only an eos token, eos also
    starts the row; T5 has no start token.
    """

    def __init__(self, task: Any, context: TaskContext, style: str = "bert") -> None:
        decodes = context.spec.decoder is not None
        check_model(task, context, encoder=not decodes, decoder=decodes, head=None)
        ids = context.data.special_tokens
        needed = ["eos"]
        # Label positions assume a start token.
        if not decodes and isinstance(task, R.TokenClassification | R.QuestionAnswering):
            needed.append("bos")
        end = special_ids(task, context, *needed)[0]
        self.begin = [end] if decodes else []
        if "bos" in ids:
            self.begin = [ids["bos"]]
        self.end = [end]
        self.between = [end]
        if "extra_sep" in ids and not decodes:
            self.between.append(ids["extra_sep"])
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
        tokens = concatenate_ids(*parts)
        if not self.segments:
            return {"tokens": tokens}
        is_second = np.arange(len(tokens)) >= self.second_text_start(first)
        return {"tokens": tokens, "segments": is_second.astype(np.int64)}

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
        fields = {"tokens": (stream, pad)}
        if self.segments:
            fields["segments"] = (stream, 0)
        return {names.get(name, name): field for name, field in fields.items()}

    def table(self, store: Store, length: int, *columns: str) -> Any:
        from ..data.batches.samples import RowSamples

        if length < 5:
            raise ValueError(
                f"length = {length} is too short for two texts and three special tokens; use "
                f"longer rows"
            )
        extra_tokens = len(self.begin) + 1
        if len(columns) > 1:
            extra_tokens += len(self.between)
        return RowSamples(store, columns, extra_tokens=extra_tokens)


def truncate_longest_first(
    first: np.ndarray, second: np.ndarray, capacity: int
) -> tuple[np.ndarray, np.ndarray]:
    """Truncate the longer text, token by token, until both fit; of two equally long texts, the
    second.
    """
    half = capacity // 2
    first_length = max(capacity - len(second), capacity - half)
    second_length = max(capacity - len(first), half)
    return first[:first_length], second[:second_length]
