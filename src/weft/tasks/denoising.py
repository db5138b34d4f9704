"""Denoising: reconstruct a text whose spans are infilled and whose sentences are shuffled (BART,
arXiv:1910.13461, section 2.2).
"""

import numpy as np

from .. import recipe as R
from ..data.batches.samples import Samples, SentenceSamples, TokenWindows
from ..data.shards.store import Store
from ..data.tokenizing.tokenizer import SpecialTokenFrame
from .base import (
    ArrayRow,
    EncoderDecoderLoss,
    LengthLimitedSamples,
    Preprocess,
    TaskContext,
    check_model,
    concatenate_ids,
    decoder_start,
    special_ids,
    text_room,
)
from .sampling import count_for_budget, random_span_starts, span_indices
from .task import HiddenTokenTask


class DenoisingPreprocess(Preprocess):
    def __init__(self, task: R.Denoising, context: TaskContext) -> None:
        check_model(task, context, encoder=True, decoder=True)
        if task.shuffle_sentences and not getattr(context.data.rows, "sentence_boundaries", False):
            raise ValueError(
                "shuffle_sentences reads sentences; prepare the data with "
                "Documents(sentence_boundaries=True), or Denoising(shuffle_sentences=False)"
            )
        super().__init__(task, context)
        self.bos_id, self.eos_id, self.mask = special_ids(task, context, "bos", "eos", "mask")
        self.task = task
        self.decoder_start = decoder_start(context, self.eos_id)
        self.fields = self.encoder_decoder_fields()
        self.frame = SpecialTokenFrame([self.bos_id], [self.eos_id], [self.eos_id])

    def read_samples(self, store: Store, length: int, include_partial: bool) -> Samples:
        size = text_room(length, 2)
        return (
            SentenceSamples(store, size)
            if self.task.shuffle_sentences
            else TokenWindows(store, size, size, include_partial)
        )

    def __call__(
        self, samples: LengthLimitedSamples, index: int, rng: np.random.Generator
    ) -> ArrayRow:
        sample = samples[index]
        text = np.asarray(sample["tokens"], np.int64)
        if text[-1] == self.eos_id:
            text = text[:-1]
        labels = concatenate_ids([self.bos_id], text, [self.eos_id])
        noised = self.infill(
            shuffle_sentences(text, sample["sentences"], rng)
            if self.task.shuffle_sentences
            else text,
            rng,
        )
        return {
            "tokens": concatenate_ids([self.bos_id], noised[: samples.length - 2], [self.eos_id]),
            "target": concatenate_ids([self.decoder_start], labels[:-1]),
            "labels": labels,
        }

    def infill(self, text: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Replace each span by one mask token; an empty span inserts one."""
        budget = self.task.mask_rate * len(text)
        lengths = rng.poisson(
            self.task.mean_span_length, 1 + int((2 * budget + 32) / self.task.mean_span_length)
        )
        lengths = lengths[: count_for_budget(rng, lengths, budget)]
        lengths = np.diff(lengths.cumsum().clip(max=len(text)), prepend=0)
        at = random_span_starts(rng, lengths, len(text))
        seen = np.ones(len(text), bool)
        seen[span_indices(at, lengths)] = False
        before = np.cumsum(lengths) - lengths  # tokens hidden before each span
        return np.insert(text[seen], at - before, self.mask)


def shuffle_sentences(
    text: np.ndarray, sentences: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    starts = np.union1d([0], sentences).astype(np.int64)
    starts = starts[starts < len(text)]
    lengths = np.diff(starts, append=len(text))
    order = rng.permutation(len(starts))
    mixed: np.ndarray = text[span_indices(starts[order], lengths[order])]
    return mixed


class DenoisingTask(HiddenTokenTask):
    preprocess_class = DenoisingPreprocess
    loss_class = EncoderDecoderLoss
