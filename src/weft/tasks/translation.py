"""Translation: decode the target of a source, with label smoothing (Vaswani et al. 2017,
arXiv:1706.03762, sections 3.4 and 5.4).
"""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from .. import recipe as R
from ..data.batches.batching import slice_of_rank
from ..data.batches.samples import RowSamples, Samples
from ..data.reading.files import strip_compression_suffix
from ..data.shards.store import Store
from ..data.tokenizing.bpe_dropout import BPEDropout, BPEDropoutSamples
from ..data.tokenizing.tokenizer import SpecialTokenFrame
from ..generate.text_generator import TextGenerator
from ..metrics.translation import translation_metrics
from ..nn.kernels.cross_entropy import cross_entropy
from .base import (
    ArrayRow,
    Batch,
    EncoderDecoderLoss,
    LengthLimitedSamples,
    Preprocess,
    TaskContext,
    check_model,
    concatenate_ids,
    decoder_start,
    selected_labels,
    special_ids,
)
from .predict import gather_predictions
from .task import EvaluateOptions, EvaluationData, HiddenTokenTask, Metrics


class TranslationPreprocess(Preprocess):
    def __init__(self, task: R.Translation, context: TaskContext) -> None:
        check_model(task, context, encoder=True, decoder=True)
        super().__init__(task, context)
        bos_id, self.eos_id = special_ids(task, context, "bos", "eos")
        self.decoder_start = decoder_start(context, bos_id)
        self.fields = self.encoder_decoder_fields()
        self.dropout = task.bpe_dropout
        self.frame = SpecialTokenFrame([], [self.eos_id], [self.eos_id])

    def read_samples(self, store: Store, length: int, include_partial: bool) -> Samples:
        samples = (BPEDropoutSamples if self.dropout and not include_partial else RowSamples)(
            store, ("source", "target"), longest_column=True, extra_tokens=1
        )
        if isinstance(samples, BPEDropoutSamples):
            samples.merges = BPEDropout(store.folder.tokenizer(), self.dropout)
        return samples

    def __call__(
        self, samples: LengthLimitedSamples, index: int, rng: np.random.Generator
    ) -> ArrayRow:
        sample = samples[index]
        room = samples.length - 1
        table = samples.samples
        source, target = (
            table.retokenize(sample, side, rng)[:room]
            if isinstance(table, BPEDropoutSamples)
            else sample[side][:room]
            for side in ("source", "target")
        )
        return {
            "tokens": concatenate_ids(source, [self.eos_id]),
            "target": concatenate_ids([self.decoder_start], target),
            "labels": concatenate_ids(target, [self.eos_id]),
        }


class TranslationLoss(EncoderDecoderLoss):
    def __init__(self, task: R.Translation | R.TextToText, context: TaskContext) -> None:
        super().__init__(task, context)
        self.smoothing = task.label_smoothing

    def loss_sums(self, answer: Tensor, batch: Batch) -> dict[str, Tensor]:
        return {"token": cross_entropy(answer, selected_labels(batch), self.smoothing)}


class TranslationTask(HiddenTokenTask):
    """Validation scores target tokens; `weft evaluate` scores the output of beam search."""

    preprocess_class = TranslationPreprocess
    loss_class = TranslationLoss

    def evaluate_model(
        self, opened: Any, data: EvaluationData, options: EvaluateOptions
    ) -> Metrics:
        row = data.store.meta.rows
        assert isinstance(row, R.SourceTargetPairs)
        rows = data.rows()
        translations = translate_all(opened, [fields[row.source] for fields in rows], options)
        yield from translation_metrics(
            translations,
            [fields[row.target] for fields in rows],
            options.language or target_language(data.source),
        )


def translate_all(opened: Any, texts: Sequence[str], options: EvaluateOptions) -> list[str]:
    """Translate every text with beam search, each on one rank; return all translations in order, on
    every rank.
    """
    ranks = options.predict.ranks
    indices = slice_of_rank(range(len(texts)), ranks.rank, ranks.size)
    written = TextGenerator(opened).translate(
        [texts[i] for i in indices],
        num_beams=options.num_beams,
        length_penalty=options.length_penalty,
        batch_size=options.predict.batch_size,
        progress=options.predict.progress,
    )
    by_number = dict(gather_predictions(list(zip(indices, written, strict=True)), ranks))
    return [by_number[i] for i in range(len(texts))]


def target_language(source: R.Source | None) -> str:
    """Return the language code that the name of the second file ends with, else en."""
    path = strip_compression_suffix(source.paths[-1]) if source is not None else ""
    ending = os.path.splitext(path)[1].lstrip(".")
    return ending if len(ending) == 2 else "en"
