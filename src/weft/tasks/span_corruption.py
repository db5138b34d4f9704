"""Span corruption: decode the spans that sentinels replaced (T5, arXiv:1910.10683, section 3.3.4
and figure 2).
"""

import numpy as np

from .. import recipe as R
from ..data.batches.samples import Samples, TokenWindows
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
)
from .sampling import random_partition
from .task import HiddenTokenTask


class SpanCorruptionPreprocess(Preprocess):
    def __init__(self, task: R.SpanCorruption, context: TaskContext) -> None:
        check_model(task, context, encoder=True, decoder=True)
        super().__init__(task, context)
        pad, self.eos_id = special_ids(task, context, "pad", "eos")
        self.task = task
        self.sentinels = np.asarray(context.data.sentinels, np.int64)
        self.decoder_start = decoder_start(context, pad)
        self.fields = self.encoder_decoder_fields()
        self.frame = SpecialTokenFrame([], [self.eos_id], [self.eos_id])

    def read_samples(self, store: Store, length: int, include_partial: bool) -> Samples:
        raw = self.raw_length(length)
        need = self.noise(raw)[1]
        if need > len(self.sentinels):
            raise ValueError(
                f"rows of {length} tokens need {need} sentinels, the tokenizer has "
                f"{len(self.sentinels)}; "
                f"prepare the data with a tokenizer that has sentinels={need} or more"
            )
        return TokenWindows(store, raw, raw, include_partial)

    def noise(self, raw: int) -> tuple[int, int]:
        """Return how many of `raw` tokens are hidden, and in how many spans."""
        hidden = max(1, min(round(raw * self.task.mask_rate), raw - 1))
        return hidden, max(1, min(round(hidden / self.task.mean_span_length), raw - hidden))

    def raw_length(self, length: int) -> int:
        """Return the largest number of raw tokens that become an input of exactly `length`, so that
        nothing is padded.
        """
        limit = int(length / max(1 - self.task.mask_rate, 1e-3)) + 2
        fitting = [raw for raw in range(2, limit) if self.lengths(raw)[0] == length]
        if not fitting or self.task.mask_rate == 1:
            raise ValueError(
                f"mask_rate = {self.task.mask_rate}: no number of raw tokens fills rows of "
                f"{length} tokens exactly; lower mask_rate"
            )
        return fitting[-1]

    def lengths(self, raw: int) -> tuple[int, int]:
        """Return the lengths of input and target, with one sentinel per span and the end token."""
        hidden, spans = self.noise(raw)
        return raw - hidden + spans + 1, hidden + spans + 1

    def __call__(
        self, samples: LengthLimitedSamples, index: int, rng: np.random.Generator
    ) -> ArrayRow:
        tokens = np.asarray(samples[index]["tokens"], np.int64)
        hidden, spans = self.noise(len(tokens))
        lengths = np.empty(2 * spans, np.int64)  # kept, hidden, kept, hidden, …
        lengths[::2] = random_partition(rng, len(tokens) - hidden, spans)
        lengths[1::2] = random_partition(rng, hidden, spans)
        noise = np.repeat(np.arange(2 * spans) % 2 == 1, lengths)
        sentinels = self.sentinels[:spans]
        shown = np.insert(tokens[~noise], lengths[::2].cumsum(), sentinels)
        target = concatenate_ids(
            np.insert(tokens[noise], lengths[1::2].cumsum() - lengths[1::2], sentinels),
            [self.eos_id],
        )
        return {
            "tokens": concatenate_ids(shown, [self.eos_id]),
            "target": concatenate_ids([self.decoder_start], target[:-1]),
            "labels": target,
        }


class SpanCorruptionTask(HiddenTokenTask):
    preprocess_class = SpanCorruptionPreprocess
    loss_class = EncoderDecoderLoss
