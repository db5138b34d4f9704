"""Text-to-text training with an encoder-decoder (T5, arXiv:1910.10683, section 2.1; BART,
arXiv:1910.13461, section 3.4).

Classes are scored by the likelihood of their text; other targets are generated (T5, section 2.4).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .. import recipe as R
from ..data.batches.samples import RowSamples, Samples
from ..data.shards.in_memory import ListSamples
from ..data.shards.store import Store
from ..data.tokenizing.tokenizer import SpecialTokenFrame
from ..generate.text_generator import TextGenerator
from ..metrics.classification import classification_metrics
from ..metrics.translation import translation_metrics
from ..nn.kernels.cross_entropy import IGNORE_INDEX
from ..nn.loaded_model import LoadedModel
from ..recipe.data.formats import Fields
from .base import (
    ArrayRow,
    Batch,
    LengthLimitedSamples,
    Preprocess,
    TaskContext,
    check_model,
    concatenate_ids,
    decoder_start,
    masks,
    special_ids,
    text_room,
)
from .predict import PredictOptions, default_row_length, device_of, predict_all
from .task import EvaluateOptions, EvaluationData, HiddenTokenTask, Metrics
from .translation import TranslationLoss, target_language, translate_all


def labelled_rows(model: LoadedModel) -> R.TemplatedPairs | None:
    """Return the row schema of a run that decodes one of several classes as text; else None."""
    recipe = getattr(model, "recipe", None)
    if recipe is None or not isinstance(recipe.task, R.TextToText):
        return None
    row = recipe.data.rows
    return row if isinstance(row, R.TemplatedPairs) and row.labels is not None else None


class EncoderOnlyPreprocess(Preprocess):
    """Rows of source texts, for the encoder only."""

    def __init__(self, pad: int) -> None:
        self.fields = {"tokens": ("tokens", pad)}

    def __call__(
        self, samples: LengthLimitedSamples, index: int, rng: np.random.Generator
    ) -> dict[str, np.ndarray]:
        return {"tokens": np.asarray(samples[index]["tokens"], np.int64)}

    def loss_counts(self, batch: Any) -> dict[str, int]:
        return {"token": len(batch["tokens"])}


def class_probabilities(
    ready: LoadedModel,
    writer: TextGenerator,
    row: R.TemplatedPairs,
    texts: Sequence[str],
    options: PredictOptions = PredictOptions(),
) -> list[list[float]]:
    """Return, per source text, the probability of each class: the likelihood of its text given the
    source, normalised over the classes. A prediction is therefore always a class, which generated
    text need not be.
    """
    target_VL, label_VL = (
        torch.from_numpy(side).to(device_of(ready.model))
        for side in decoder_targets(writer, row.targets)
    )

    def likelihoods(batch: Batch) -> Tensor:
        model = ready.model
        count = len(target_VL)
        memory = model.encode(model.embed(batch["tokens"], **masks(batch)))
        rows = len(memory.x_BLD)
        x_BLD = memory.x_BLD
        mask_BL = memory.attention_mask_BL
        memory = replace(
            memory,
            x_BLD=x_BLD.repeat_interleave(count, 0),
            attention_mask_BL=None if mask_BL is None else mask_BL.repeat_interleave(count, 0),
        )
        logits = model.read(
            model.decode(model.embed_target(target_VL.repeat(rows, 1), memory), memory)
        )
        assert isinstance(logits, Tensor)
        label_TL = label_VL.repeat(rows, 1)
        said_TL = (
            logits.float().log_softmax(-1).gather(-1, label_TL.clamp(min=0)[..., None])[..., 0]
        )
        return said_TL.masked_fill(label_TL == IGNORE_INDEX, 0.0).sum(-1).view(rows, count)

    def plain(scores_BV: Tensor, batch: Batch) -> list[Any]:
        probabilities: list[Any] = scores_BV.double().softmax(-1).tolist()
        return probabilities

    most = default_row_length(ready.model)
    samples = LengthLimitedSamples(
        ListSamples([{"tokens": truncate_keep_suffix(writer, text, most)} for text in texts]), most
    )
    return predict_all(
        EncoderOnlyPreprocess(writer.tokenizer.special.get("pad", 0)),
        samples,
        likelihoods,
        plain,
        device_of(ready.model),
        options,
    )


def truncate_keep_suffix(writer: TextGenerator, text: str, limit: int) -> list[int]:
    """Return the tokens of a text, truncated before its final special tokens."""
    ids = writer.encode_with_frame(text)
    end = len(writer.after)
    return ids if len(ids) <= limit else [*ids[: limit - end], *ids[len(ids) - end :]]


def decoder_targets(writer: TextGenerator, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return the inputs and labels of the decoder, one row per text. The padding follows the text,
    so that a causal decoder does not see it.
    """
    labels = [np.asarray(writer.encode_with_frame(text), np.int64) for text in texts]
    wide = max(map(len, labels))
    label_rows = np.stack(
        [
            np.pad(label_ids, (0, wide - len(label_ids)), constant_values=IGNORE_INDEX)
            for label_ids in labels
        ]
    )
    read = np.stack(
        [
            np.pad(concatenate_ids([writer.start()], label_ids[:-1]), (0, wide - len(label_ids)))
            for label_ids in labels
        ]
    )
    return read, label_rows


class TextToTextPreprocess(Preprocess):
    """The decoder input is the target shifted right, after the decoder start token:
    `shift_tokens_right` of transformers.
    """

    def __init__(self, task: R.TextToText, context: TaskContext) -> None:
        check_model(task, context, encoder=True, decoder=True)
        super().__init__(task, context)
        (end,) = special_ids(task, context, "eos")
        bart = task.input_format == "bart"
        self.frame: SpecialTokenFrame = SpecialTokenFrame(
            list(special_ids(task, context, "bos")) if bart else [], [end], [end]
        )
        self.decoder_start: int = decoder_start(
            context, end if bart else context.data.special_tokens.get("pad", end)
        )
        self.fields = self.encoder_decoder_fields()

    def read_samples(self, store: Store, length: int, include_partial: bool) -> Samples:
        return RowSamples(
            store,
            ("source", "target"),
            longest_column=True,
            extra_tokens=len(self.frame.prefix) + 1,
        )

    def __call__(
        self, samples: LengthLimitedSamples, index: int, rng: np.random.Generator
    ) -> ArrayRow:
        sample = samples[index]
        labels = self.around(sample["target"], samples.length)
        return {
            "tokens": self.around(sample["source"], samples.length),
            "target": concatenate_ids([self.decoder_start], labels[:-1]),
            "labels": labels,
        }

    def around(self, tokens: np.ndarray, length: int) -> np.ndarray:
        return concatenate_ids(
            self.frame.prefix,
            tokens[: text_room(length, len(self.frame.prefix) + 1)],
            self.frame.suffix,
        )


class TextToTextTask(HiddenTokenTask):
    """Validation checks whether greedy decoding gives the target; `weft evaluate` scores the most
    likely class, or the output of beam search.
    """

    preprocess_class = TextToTextPreprocess
    loss_class = TranslationLoss

    def evaluate(self, predictions: Sequence[Any], references: Sequence[Any]) -> Metrics:
        """Yield the fraction of rows in which every token is the most likely one: greedy decoding
        would give exactly the target.
        """
        yield "exact_match", float(np.mean([all(hit for _, hit in row) for row in predictions]))

    def evaluate_model(
        self, opened: Any, data: EvaluationData, options: EvaluateOptions
    ) -> Metrics:
        row = data.store.meta.rows
        rows = data.rows()
        if isinstance(row, R.TemplatedPairs) and row.labels is not None:
            labels = row.labels
            writer = TextGenerator(opened)
            texts = [row.source_text(fields) for fields in rows]
            probabilities = class_probabilities(opened, writer, row, texts, options.predict)
            yield from classification_metrics(
                [
                    labels[row_probabilities.index(max(row_probabilities))]
                    for row_probabilities in probabilities
                ],
                [str(fields[row.target]) for fields in rows],
                labels,
            )
            yield from self.evaluate(self.predict_store(data.store, options), ())
            return
        pairs = [source_and_target(row, fields) for fields in rows]
        written = translate_all(opened, [source for source, _ in pairs], options)
        targets = [target for _, target in pairs]
        hits = [
            text.strip() == target.strip() for text, target in zip(written, targets, strict=True)
        ]
        yield "exact_match", float(np.mean(hits))
        language = options.language or target_language(data.source)
        yield from translation_metrics(written, targets, language)


def source_and_target(row: R.RowSchema, fields: Fields) -> tuple[str, str]:
    """Return the source text as a user types it, and the target. The generator adds the template of
    a single column by itself.
    """
    if isinstance(row, R.TemplatedPairs):
        names = row.template_columns
        source = fields[names[0]] if len(names) == 1 else row.source_text(fields)
        return source, row.target_text(fields)
    assert isinstance(row, R.SourceTargetPairs)
    return fields[row.source], fields[row.target]
