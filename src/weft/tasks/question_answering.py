"""Extractive question answering: predict where the answer starts and ends in a text (BERT,
arXiv:1810.04805, sections 4.2 and 4.3).
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from .. import recipe as R
from ..data.batches.collate import attention_mask
from ..data.reading.files import expand
from ..data.reading.formats.squad import Question, iterate_questions, read_questions
from ..data.shards.in_memory import InMemoryStore
from ..data.shards.store import Store
from ..metrics.squad import AnswerPrediction, squad_metrics
from ..nn.kernels.cross_entropy import cross_entropy
from ..spec.spec import max_row_length
from .base import (
    ArrayRow,
    Batch,
    LengthLimitedSamples,
    Loss,
    Preprocess,
    TaskContext,
    check_head,
    encode_batch,
)
from .pair_encoding import PairEncoding
from .task import EvaluateOptions, EvaluationData, Metrics, TaskImplementation, predict

MAX_ANSWER_TOKENS = 30  # default of BERT's script


class QuestionAnsweringPreprocess(Preprocess):
    """A row is bos question eos context eos. Without an answer in the window, both labels are the
    first token (section 4.3).
    """

    terms = ("span",)

    def __init__(self, task: R.QuestionAnswering, context: TaskContext) -> None:
        check_head(task, context, outputs=2)
        assert isinstance(context.data.rows, R.ContextQuestions)
        super().__init__(task, context)
        self.join = PairEncoding(task, context)
        self.window = context.data.rows.max_length
        self.fields = self.join.fields(self.pad_id)
        self.frame = self.join.frame

    def read_samples(self, store: Store, length: int, include_partial: bool) -> Any:
        if length < self.window:  # truncation would lose answers
            raise ValueError(
                f"length = {length}: the data's windows have {self.window} tokens; "
                f"prepare them with ContextQuestions(max_length={length})"
            )
        return self.join.table(store, length, "question", "context")

    def __call__(
        self, samples: LengthLimitedSamples, index: int, rng: np.random.Generator
    ) -> ArrayRow:
        sample = samples[index]
        first = self.join.second_text_start(sample["question"])  # the context's place in the row
        places = {
            f"labels_{side}": np.asarray(0 if sample[side] < 0 else sample[side] + first)
            for side in ("start", "end")
        }
        row = self.join(sample["question"], sample["context"], samples.length)
        return row | places | {"context": np.array([first, first + len(sample["context"])])}

    def term_counts(self, batch: Any) -> dict[str, int]:
        return {"span": len(batch["labels_start_at"])}


class QuestionAnsweringLoss(Loss):
    def __init__(self, task: R.QuestionAnswering, context: TaskContext) -> None:
        super().__init__(task, context, {"span": 1.0})

    def forward_outputs(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the logits of a start and an end at each position, without padding."""
        scores = self.model.read(encode_batch(self.model, batch))
        assert isinstance(scores, Tensor)
        if (mask_BL := attention_mask(batch, "tokens")) is not None:
            scores = scores.masked_fill(~mask_BL[..., None], torch.finfo(scores.dtype).min)
        start_BL, end_BL = scores.unbind(-1)
        return start_BL, end_BL

    def loss_sums(self, answer: tuple[Tensor, Tensor], batch: Batch) -> dict[str, Tensor]:
        start_BL, end_BL = answer
        return {
            "span": (
                cross_entropy(start_BL, batch["labels_start"])
                + cross_entropy(end_BL, batch["labels_end"])
            )
            / 2
        }


class AnswerSpan(NamedTuple):
    start_B: Tensor
    end_B: Tensor  # inclusive
    score_B: Tensor
    no_answer_B: Tensor  # the score of no answer: start and end at the first token


def best_span(start_BL: Tensor, end_BL: Tensor, context: Tensor, longest: int) -> AnswerSpan:
    """Return the best span inside the context, of at most `longest` tokens: (B, 2), its first
    position and the one after its last (section 4.2).
    """
    L = start_BL.shape[1]
    place_L = torch.arange(L, device=start_BL.device)
    outside_BL = (place_L < context[:, :1]) | (place_L >= context[:, 1:])
    begins_BL, ends_BL = (
        x_BL.masked_fill(outside_BL, float("-inf")) for x_BL in (start_BL, end_BL)
    )
    longest = min(longest, L)
    ahead_BLS = F.pad(ends_BL, (0, longest - 1), value=float("-inf")).unfold(1, longest, 1)
    score_B, at_B = (begins_BL[..., None] + ahead_BLS).flatten(1).max(1)
    start_B = at_B // longest
    return AnswerSpan(start_B, start_B + at_B % longest, score_B, start_BL[:, 0] + end_BL[:, 0])


class Window(NamedTuple):
    """A part of a context whose tokens form one row."""

    id: str  # of the question
    offsets: np.ndarray  # (tokens, 2): where each token begins and ends in the context
    context: str
    answers: tuple[str, ...] = ()  # accepted answers; empty if unanswerable


class ExtractedAnswer(NamedTuple):
    text: str
    start: int  # characters of the context
    end: int
    score: float
    no_answer_margin: float  # score of no answer minus that of the span


class QuestionAnsweringTask(TaskImplementation):
    preprocess_class = QuestionAnsweringPreprocess
    loss_class = QuestionAnsweringLoss

    def predict(self, outputs: tuple[Tensor, Tensor], batch: Batch) -> list[Any]:
        """Return the first and last token of the answer in the window, its score, and the score of
        no answer.
        """
        start_BL, end_BL = (x_BL.float() for x_BL in outputs)
        best = best_span(start_BL, end_BL, batch["context"], MAX_ANSWER_TOKENS)
        first_B = batch["context"][:, 0]
        columns = (best.start_B - first_B, best.end_B - first_B, best.score_B, best.no_answer_B)
        plain: list[Any] = torch.stack(columns, -1).double().tolist()
        return plain

    def references(self, data: EvaluationData) -> Sequence[Any]:
        """Return one window per sample with all answers of the file, not only the first."""
        if data.source is None:
            raise ValueError(
                "question answering is scored against the original file; give it with --data"
            )
        questions = {
            question.id: question
            for path in expand(data.source.paths)
            for question in iterate_questions(path, data.source.fraction)
            if isinstance(question, Question)
        }
        return [
            Window(
                row["id"],
                row["offsets"].reshape(-1, 2),
                questions[row["id"]].context,
                tuple(questions[row["id"]].answers),
            )
            for row in map(data.store.row, range(len(data.store)))
        ]

    def evaluate(self, predictions: Sequence[Any], references: Sequence[Any]) -> Metrics:
        answers = best_answers(predictions, references)
        yield from squad_metrics(
            {
                name: AnswerPrediction(probabilities.text, probabilities.no_answer_margin)
                for name, probabilities in answers.items()
            },
            {window.id: window.answers for window in references},
        )

    def evaluate_model(
        self, opened: Any, data: EvaluationData, options: EvaluateOptions
    ) -> Metrics:
        """Evaluate every question of the file, including those that training skips."""
        if data.source is None:
            raise ValueError(
                "question answering is scored against the original file; give it with --data"
            )
        questions = [
            question
            for path in expand(data.source.paths)
            for question in read_questions(path, data.source.fraction)
        ]
        answers = answer_questions(
            opened, [(row.question, row.context) for row in questions], options
        )
        yield from squad_metrics(
            {
                row.id: AnswerPrediction(answer.text, answer.no_answer_margin)
                for row, answer in zip(questions, answers, strict=True)
            },
            {row.id: row.answers for row in questions},
            options.no_answer_threshold,
        )


def best_answers(
    predictions: Sequence[Any], windows: Sequence[Window]
) -> dict[str, ExtractedAnswer]:
    """Return the best span of each question over all its windows. The score of no answer is the
    lowest of all windows, since every window but one lacks the answer (section 4.3).
    """
    best: dict[str, ExtractedAnswer] = {}
    least: dict[str, float] = {}
    for (first, last, score, none), window in zip(predictions, windows, strict=True):
        empty = not len(window.offsets)  # a context without tokens has no answer
        start, end = (
            (0, 0)
            if empty
            else (int(window.offsets[int(first), 0]), int(window.offsets[int(last), 1]))
        )
        score, none = (float("-inf"), 0.0) if empty else (score, none)
        least[window.id] = min(least.get(window.id, float("inf")), none)
        before = best.get(window.id)
        if before is None or score > before.score:
            best[window.id] = ExtractedAnswer(window.context[start:end], start, end, score, 0.0)
    return {
        name: answer._replace(no_answer_margin=least[name] - answer.score)
        for name, answer in best.items()
    }


def answer_questions(
    opened: Any, questions: Sequence[tuple[str, str]], options: EvaluateOptions
) -> list[ExtractedAnswer]:
    """Answer each (question, context) with the best span over all windows."""
    row = opened.recipe.data.rows if opened.recipe is not None else None
    row = row if isinstance(row, R.ContextQuestions) else R.ContextQuestions()
    length = min(row.max_length, max_row_length(opened.model.spec) or row.max_length)
    row = R.ContextQuestions(
        max_length=length,
        stride=min(row.stride, max(1, length // 2)),
        max_question_length=min(row.max_question_length, max(1, length // 4)),
    )
    fields = [
        {
            "id": str(i),
            "question": question,
            "context": context,
            "answer_start": -1,
            "answer_end": -1,
        }
        for i, (question, context) in enumerate(questions)
    ]
    store = InMemoryStore(fields, row, opened.require_tokenizer, None)
    predictions = predict(
        opened, R.QuestionAnswering(), store, length=length, options=options.predict
    )
    windows = [
        Window(window["id"], window["offsets"].reshape(-1, 2), questions[int(window["id"])][1])
        for window in map(store.row, range(len(store)))
    ]
    answers = best_answers(predictions, windows)
    nothing = ExtractedAnswer("", 0, 0, float("-inf"), float("inf"))
    return [answers.get(str(i), nothing) for i in range(len(questions))]
