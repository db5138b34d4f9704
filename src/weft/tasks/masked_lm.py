"""Masked language modelling: predict masked tokens (BERT, arXiv:1810.04805, section 3.1; spans:
SpanBERT, arXiv:1907.10529, section
3.1)."""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from .. import recipe as R
from .. import spec as S
from ..data.batches.samples import Samples, SentenceSamples
from ..data.shards.store import Store
from ..data.tokenizing.tokenizer import SpecialTokenFrame
from ..nn.kernels.cross_entropy import IGNORE_INDEX, cross_entropy
from ..nn.layers.roles import head_linear
from .base import (
    ArrayRow,
    Batch,
    LengthLimitedSamples,
    Loss,
    Preprocess,
    TaskContext,
    check_model,
    logits_at,
    masks,
    selected_labels,
    special_ids,
    text_room,
)
from .sampling import count_for_budget, random_span_starts, span_indices
from .task import HiddenTokenTask
from .text_inputs import PAIRS, TextInput

LONGEST = 10
# SpanBERT's geometric lengths, cut at 10: 3.8 words on average
SPAN_LENGTH_CDF = 0.2 * 0.8 ** np.arange(LONGEST)
SPAN_LENGTH_CDF = SPAN_LENGTH_CDF.cumsum() / SPAN_LENGTH_CDF.sum()


class MaskedLMPreprocess(Preprocess):
    def __init__(self, task: R.MaskedLM, context: TaskContext, head: type = S.LMHead) -> None:
        check_model(task, context, encoder=True, head=head)
        if task.mask_token_rate + task.random_token_rate > 1:
            raise ValueError(
                f"mask_token_rate = {task.mask_token_rate} and random_token_rate = "
                f"{task.random_token_rate} of the chosen tokens add up to more than 1; lower one "
                f"of them"
            )
        if task.mask_token_rate + task.random_token_rate == 0:
            raise ValueError(
                "mask_token_rate = 0 and random_token_rate = 0 leave every chosen token "
                "unchanged; raise one of them"
            )
        if task.next_sentence and task.input_format not in PAIRS:
            raise ValueError(
                f"next_sentence needs input_format = {' or '.join(map(repr, PAIRS))}, not "
                f"{task.input_format!r}"
            )
        if not getattr(context.data.rows, "sentence_boundaries", False):
            raise ValueError(
                f"input_format = {task.input_format!r} reads sentences; prepare the data with "
                "Documents(sentence_boundaries=True)"
            )
        super().__init__(task, context)
        meta = context.data
        bos_id, eos_id, *mask = special_ids(
            task, context, "bos", "eos", *(["mask"] if task.mask_token_rate else [])
        )
        self.mask = mask[0] if mask else self.pad_id  # without a share, nothing becomes it
        self.format = TextInput(task.input_format, bos_id, eos_id, task.next_sentence)
        self.task = task
        self.same_every_epoch = task.static_mask
        self.frame = SpecialTokenFrame([bos_id], [eos_id], [eos_id])
        self.can_be_masked = np.ones(meta.vocab_size or 0, bool)
        self.can_be_masked[[*meta.special_tokens.values(), *meta.sentinels]] = False
        self.ordinary_ids = np.flatnonzero(self.can_be_masked)
        self.continues = (
            np.zeros_like(self.can_be_masked)
            if meta.is_continuation is None
            else meta.is_continuation
        )
        if task.masking_unit != "tokens" and meta.is_continuation is None:
            raise ValueError(
                f"masking_unit = {task.masking_unit!r} needs word boundaries, which this tokenizer "
                'does not mark; use "tokens"'
            )
        self.segments = (
            task.input_format in PAIRS
            and (getattr(context.spec.source, "token_types", None) or 1) > 1
        )
        self.fields = {"tokens": ("tokens", self.pad_id), "labels": ("tokens", IGNORE_INDEX)}
        self.fields |= (
            {"tokens_document_ids": ("tokens", 0)} if task.input_format == "doc-sentences" else {}
        )
        self.fields |= {"segments": ("tokens", 0)} if self.segments else {}
        self.fields |= {"labels_next": ("tokens", IGNORE_INDEX)} if task.next_sentence else {}
        self.terms = ("token", "next") if task.next_sentence else ("token",)

    def read_samples(self, store: Store, length: int, include_partial: bool) -> Samples:
        samples = SentenceSamples(
            store,
            text_room(length, self.format.special_tokens),
            follow=self.task.input_format in PAIRS,
        )
        if self.task.next_sentence and len(samples) < 2:
            raise ValueError(
                f"next_sentence samples from other rows, and {store.tokens} tokens are one row of "
                f"{length}; give more text"
            )
        return samples

    def __call__(
        self, samples: LengthLimitedSamples, index: int, rng: np.random.Generator
    ) -> ArrayRow:
        row = self.format(samples, index, rng)
        if not self.segments:
            row.pop("segments", None)
        tokens = row["tokens"]
        at, chance = self.choose_positions(tokens, rng)
        row["labels"] = np.full(len(tokens), IGNORE_INDEX)
        row["labels"][at] = tokens[at]
        fresh = self.ordinary_ids[rng.integers(len(self.ordinary_ids), size=len(at))]
        tokens[at] = np.where(
            chance < self.task.mask_token_rate,
            self.mask,
            np.where(
                chance < self.task.mask_token_rate + self.task.random_token_rate,
                fresh,
                tokens[at],
            ),
        )
        return row

    def choose_positions(
        self, tokens: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Choose positions to predict: a fraction `mask_rate` of the ordinary tokens on average, at
        least one. Also returns a random number in [0, 1) per position, which decides what replaces
        its token.
        """
        at = np.flatnonzero(self.can_be_masked[tokens])
        budget = self.task.mask_rate * len(at)
        masking_unit = self.task.masking_unit
        if not len(at) or masking_unit == "tokens":
            count = count_for_budget(rng, np.ones(len(at), np.int64), budget)
            at = rng.permutation(at)[: max(count, 1)]
            return at, rng.random(len(at))
        first = ~self.continues[tokens[at]]
        first[0] = True
        first[1:] |= np.diff(at) > 1
        word = np.flatnonzero(first)  # index in `at` of each word's first token
        size = np.diff(word, append=len(at))
        if masking_unit == "words":
            order = rng.permutation(len(word))
            order = order[: max(count_for_budget(rng, size[order], budget), 1)]
            at = at[span_indices(word[order], size[order])]
            return at, rng.random(len(at))
        lengths = np.searchsorted(SPAN_LENGTH_CDF, rng.random(len(word)), side="right") + 1
        lengths = lengths[: max(count_for_budget(rng, lengths, self.task.mask_rate * len(word)), 1)]
        lengths = np.diff(lengths.cumsum().clip(max=len(word)), prepend=0)
        start = random_span_starts(rng, lengths, len(word))
        edge = np.append(word, len(at))
        size = edge[start + lengths] - edge[start]
        # all tokens of a span get the same replacement
        return at[span_indices(edge[start], size)], np.repeat(rng.random(len(start)), size)

    def term_counts(self, batch: Any) -> dict[str, int]:
        return {"token": len(batch["labels_at"])} | (
            {"next": len(batch["labels_next_at"])} if "next" in self.terms else {}
        )


class NextSentenceHead(nn.Module):
    """BERT's pooler and its classifier with two classes, discarded after pre-training."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.dense = head_linear(width, width)
        self.classes = head_linear(width, 2)

    def forward(self, x_TD: Tensor) -> Tensor:
        logits_TV: Tensor = self.classes(torch.tanh(self.dense(x_TD)))
        return logits_TV


class MaskedLMOutputs(NamedTuple):
    logits_TV: Tensor
    next_TV: Tensor | None


class MaskedLMLoss(Loss):
    splits_vocabulary = True

    def __init__(self, task: R.MaskedLM, context: TaskContext) -> None:
        super().__init__(
            task, context, {"token": 1.0} | ({"next": 1.0} if task.next_sentence else {})
        )
        self.next = NextSentenceHead(context.spec.head_input_width) if task.next_sentence else None
        self.initialise_own_parameters(context)

    def forward_outputs(self, batch: Batch) -> MaskedLMOutputs:
        sequence = self.model.encode(
            self.model.embed(batch["tokens"], token_type_ids=batch.get("segments"), **masks(batch))
        )
        first = (
            self.next(sequence.x_BLD.flatten(0, 1)[batch["labels_next_at"]]) if self.next else None
        )
        return MaskedLMOutputs(logits_at(self.model, sequence, batch["labels_at"]), first)

    def loss_sums(self, answer: MaskedLMOutputs, batch: Batch) -> dict[str, Tensor]:
        terms = {"token": cross_entropy(answer.logits_TV, selected_labels(batch))}
        return (
            terms
            if answer.next_TV is None
            else {
                **terms,
                "next": cross_entropy(answer.next_TV, selected_labels(batch, "labels_next")),
            }
        )


class MaskedLMTask(HiddenTokenTask):
    preprocess_class = MaskedLMPreprocess
    loss_class = MaskedLMLoss

    def predict(self, outputs: MaskedLMOutputs, batch: Batch) -> list[Any]:
        return super().predict(outputs.logits_TV, batch)
