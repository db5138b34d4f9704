"""Inference methods: texts or images in, plain predictions out, in the same order."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from .. import recipe as R
from .. import spec as S
from ..data.shards.in_memory import InMemoryStore, ListSamples
from ..data.tokenizing.tokenizer import SPECIAL_TOKEN_NAMES, Tokenizer
from ..generate.text_generator import TextGenerator
from ..interop.huggingface.sentence_transformers import PoolingModules, read_modules
from ..metrics.entities import outside_tag
from ..nn.heads import pool_tokens as pooled
from ..nn.kernels.cross_entropy import IGNORE_INDEX
from ..nn.layers.sequence import HiddenStates as Vectors
from ..nn.loaded_model import LoadedModel, check_reads_text, image_command
from ..tasks.base import (
    Batch,
    LengthLimitedSamples,
    Preprocess,
    concatenate_ids,
    encode_batch,
    logits_at,
)
from ..tasks.predict import (
    DEFAULT_LENGTH,
    PredictOptions,
    default_row_length,
    device_of,
    predict_all,
)
from ..tasks.question_answering import ExtractedAnswer, answer_questions
from ..tasks.task import EvaluateOptions, predict
from ..tasks.text_to_text import class_probabilities, labelled_rows
from .images import ImageInput, embed_images, image_store, with_transforms

TUNABLE_CHECKPOINT = "bert-base-uncased"  # suggested if a model cannot be fine-tuned
MASK = re.compile(r"\s*(?:" + "|".join(map(re.escape, SPECIAL_TOKEN_NAMES["mask"])) + ")")


def check_head(opened: LoadedModel, task: type[R.Task], recipe: str | None = None) -> None:
    """Raise ValueError for a model without the head of a task; the error suggests commands for the
    model's head and for the task's: a `recipe`, or `weft tune` if it supports the input."""
    s = opened.model.spec
    name = opened.name
    commands = []
    if isinstance(s.head, task.head):
        return
    if opened.reads_images:
        commands.append(f"use {image_command(opened)}")
    if recipe is not None:
        commands.append(f"train one with weft train {recipe}")
    elif isinstance(s.source, S.Tokens | S.Patches):
        data = "FOLDER" if opened.reads_images else "FILE"
        checkpoint = name if opened.reads_images or has_end_token(opened) else TUNABLE_CHECKPOINT
        commands.append(f"train one with weft tune {checkpoint} --task {task.name} --data {data}")
    raise ValueError(
        f"{name} has the head {type(s.head).__name__}; this command needs {task.head.__name__}; "
        + ", or ".join(commands)
    )


def has_end_token(opened: LoadedModel) -> bool:
    """Return whether the tokenizer can end a row of text, as `weft tune` requires."""
    return opened.tokenizer is not None and "eos" in opened.tokenizer.special


def check_verb(opened: LoadedModel, verb: str) -> None:
    """Raise ValueError for a run whose head suits a command but whose task does not."""
    if opened.recipe is None:
        return
    task = opened.recipe.task.for_inference(opened.recipe.data.rows)
    if task.verb != verb:
        raise ValueError(
            f"{opened.name} was trained by {type(task).__name__}, which weft {verb} does not "
            f"support; to score it, use weft evaluate {opened.name} --data FILE"
        )


def task_as_trained(opened: LoadedModel, task: type[R.Task]) -> R.Task:
    """Return the task of the run if it has this type, else the default one for the model."""
    run_task = opened.recipe.task if opened.recipe is not None else None
    return run_task if isinstance(run_task, task) else task.for_model(opened.model.spec)


def row_length(model: LoadedModel) -> int:
    """Return the row length: `batch.length` for a model trained from scratch, which saw no other
    positions; the checkpoint's context for a fine-tuned model."""
    recipe = model.recipe
    return (
        recipe.batch.length
        if recipe is not None and recipe.init_from is None
        else default_row_length(model.model)
    )


def label_names(model: LoadedModel) -> tuple[str, ...]:
    """Return the label names of the head, or numbers without names; for a text-to-text run, its
    classes."""
    if (worded := labelled_rows(model)) is not None:
        return worded.labels or ()
    return model.labels or tuple(map(str, range(getattr(model.model.spec.head, "num_labels", 0))))


# Classification and regression


def classify_images(
    model: LoadedModel, images: Sequence[ImageInput], options: PredictOptions = PredictOptions()
) -> list[Any]:
    """Return, per image, the probability of every class in the order of `label_names`."""
    check_head(model, R.Classification)
    check_verb(model, "classify")
    task = with_transforms(task_as_trained(model, R.Classification), model)
    return predict(
        model, task, image_store(model, images), length=row_length(model), options=options
    )


def classify(
    model: LoadedModel,
    inputs: Sequence[tuple[Any, str | None]],
    options: PredictOptions = PredictOptions(),
) -> list[Any]:
    """Return, per text, pair or image, the probability of every class in the order of
    `label_names`, or a number for a regression model."""
    if model.reads_images:
        return classify_images(model, [image for image, _ in inputs], options)
    if (worded := labelled_rows(model)) is not None:
        return class_probabilities(
            model,
            TextGenerator(model),
            worded,
            [fill_template(worded, pair) for pair in inputs],
            options,
        )
    check_head(model, R.Classification)
    names = label_names(model)
    check_verb(model, "classify")
    number = len(names) == 1
    task = task_as_trained(model, R.Regression if number else R.Classification)
    has_second_text = any(second is not None for _, second in inputs)
    row = R.LabelledTexts(
        text="first", second_text="second" if has_second_text else None, numeric_label=number
    )
    fields = [
        {"first": first, "second": second or "", "label": 0.0 if number else names[0]}
        for first, second in inputs
    ]
    return predict(
        model,
        task,
        InMemoryStore(fields, row, model.require_tokenizer, None if number else names),
        length=row_length(model),
        options=options,
    )


def fill_template(row: R.TemplatedPairs, texts: tuple[str, str | None]) -> str:
    """Return one or two texts in the template of the run."""
    present_texts = [text for text in texts if text is not None]
    if len(present_texts) != len(row.template_columns):
        raise ValueError(
            f"this run reads {' and '.join(map(repr, row.template_columns))}; "
            f"give {len(row.template_columns)} text"
            + ("s, with --pairs" if len(row.template_columns) > 1 else "")
        )
    return row.source_text(dict(zip(row.template_columns, present_texts, strict=True)))


# Tagging


def tag(
    model: LoadedModel,
    sentences: Sequence[Sequence[str]],
    options: PredictOptions = PredictOptions(),
) -> list[list[tuple[str, float]]]:
    """Return the tag of each word with its probability; words beyond the row length get the tag of
    words outside entities."""
    check_reads_text(model)
    check_head(model, R.TokenClassification)
    names = label_names(model)
    fields = [{"words": words, "tags": [names[0]] * len(words)} for words in sentences if words]
    predictions: Iterator[Any] = iter(())
    if fields:
        store = InMemoryStore(fields, R.TaggedWords(), model.require_tokenizer, names)
        task = R.TokenClassification()
        predictions = iter(predict(model, task, store, length=row_length(model), options=options))
    beyond = (outside_tag(names), 0.0)
    tagged = []
    for words in sentences:
        tags = (
            [(names[int(tag)], probability) for tag, probability in next(predictions)]
            if words
            else []
        )
        tagged.append(tags + [beyond] * (len(words) - len(tags)))
    return tagged


# Question answering


def answer(
    model: LoadedModel,
    questions: Sequence[tuple[str, str]],
    options: PredictOptions = PredictOptions(),
) -> list[ExtractedAnswer]:
    """Return, per (question, context), the best span over all windows."""
    check_reads_text(model)
    check_head(model, R.QuestionAnswering)
    return answer_questions(model, questions, EvaluateOptions(options))


# Embeddings and masked words


class SingleTextPreprocess(Preprocess):
    """Preprocessing of a text with the special tokens of its tokenizer.json, or else with an
    encoder's bos and eos. Masked tokens are scored."""

    def __init__(self, model: LoadedModel, mask: int | None = None) -> None:
        tokenizer = model.require_tokenizer
        decodes = model.model.spec.encoder is None
        self.before, self.after = tokenizer.special_frame()
        if not (self.before or self.after or decodes):
            self.before, self.after = (
                [tokenizer.special[m]] if m in tokenizer.special else [] for m in ("bos", "eos")
            )
        self.fields = {
            "tokens": ("tokens", tokenizer.special.get("pad", 0)),
            "labels": ("tokens", IGNORE_INDEX),
        }
        self.mask = mask

    def beside(self, length: int) -> int:
        """Return the number of text tokens that fit into a row of this length."""
        return length - len(self.before) - len(self.after)

    def __call__(
        self, samples: LengthLimitedSamples, index: int, rng: np.random.Generator
    ) -> dict[str, np.ndarray]:
        tokens = concatenate_ids(
            self.before, samples[index]["tokens"][: self.beside(samples.length)], self.after
        )
        return {"tokens": tokens, "labels": np.where(tokens == self.mask, tokens, IGNORE_INDEX)}


def embed(
    model: LoadedModel,
    texts: Sequence[Any],
    pooling: str | None = None,
    normalised: bool | None = None,
    options: PredictOptions = PredictOptions(),
) -> list[list[float]]:
    """Return one vector per text or image.

    For a text, pools over its tokens and special tokens: their mean, their maximum, the first or
    the last (Reimers and Gurevych 2019, arXiv:1908.10084, section 3); for an encoder-decoder, over
    the encoder's. The default is that of the folder's modules.json; without one, the mean, not
    normalised."""
    if model.reads_images:
        return embed_images(model, texts, pooling, normalised, options)
    modules = read_modules(model.model.origin or model.folder) or PoolingModules("mean")
    chosen = pooling or modules.pooling
    scaled = modules.normalise if normalised is None else normalised

    def vectors(batch: Batch) -> Tensor:
        named = ("tokens", "tokens_attention_mask")
        hidden_states: Vectors = encode_batch(
            model.model, {name: batch[name] for name in named if name in batch}
        )
        return pooled(hidden_states, chosen).float()

    def plain(x_BD: Tensor, batch: Batch) -> list[Any]:
        out: list[Any] = (F.normalize(x_BD, dim=-1) if scaled else x_BD).tolist()
        return out

    whole = SingleTextPreprocess(model)
    tokens = [model.require_tokenizer.encode(text) for text in texts]
    if not (whole.before or whole.after):  # an empty text without special tokens yields no row
        tokens = [
            ids if len(ids) else np.array([model.require_tokenizer.special.get("unk", 0)])
            for ids in tokens
        ]
    samples = LengthLimitedSamples(
        ListSamples([{"tokens": ids} for ids in tokens]),
        min(default_row_length(model.model), modules.length or DEFAULT_LENGTH),
    )
    return predict_all(whole, samples, vectors, plain, device_of(model.model), options)


def fill(
    model: LoadedModel,
    texts: Sequence[str],
    top: int = 5,
    options: PredictOptions = PredictOptions(),
) -> list[list[list[tuple[str, float]]]]:
    """Return, per masked word of each text, the most likely words with their probabilities."""
    mask = mask_token(model)

    def logits(batch: Batch) -> Tensor:
        return logits_at(model.model, encode_batch(model.model, batch), batch["labels_at"])

    def plain(logits_TV: Tensor, batch: Batch) -> list[Any]:
        share_TK, word_TK = logits_TV.double().softmax(-1).topk(min(top, logits_TV.shape[-1]))
        row_T = (batch["labels_at"] // batch["labels"].shape[1]).tolist()
        predictions: list[Any] = [[] for _ in batch["labels"]]
        for row, words, probabilities in zip(
            row_T, word_TK.tolist(), share_TK.tolist(), strict=True
        ):
            predictions[row].append(list(zip(words, probabilities, strict=True)))
        return predictions

    token_rows = [encode_with_masks(model.require_tokenizer, text, mask) for text in texts]
    preprocess = SingleTextPreprocess(model, mask)
    samples = LengthLimitedSamples(
        ListSamples([{"tokens": tokens} for tokens in token_rows]),
        default_row_length(model.model),
    )
    for text, tokens in zip(texts, token_rows, strict=True):
        if mask not in tokens:
            raise ValueError(
                f"{text[:60]!r} has no mask; write "
                f"{' or '.join(reversed(SPECIAL_TOKEN_NAMES['mask']))} for each word to predict"
            )
        if mask in tokens[preprocess.beside(samples.length) :]:
            raise ValueError(
                f"{text[:60]!r} has a mask beyond the maximum of {samples.length} tokens; "
                "give a shorter part"
            )
    predictions = predict_all(preprocess, samples, logits, plain, device_of(model.model), options)
    return [
        [
            [(token_text(model.require_tokenizer, int(i)), share) for i, share in candidates]
            for candidates in places
        ]
        for places in predictions
    ]


def mask_token(model: LoadedModel) -> int:
    """Return the id of the mask token of an encoder with a language modelling head.

    Raises:
        ValueError: for any other model.
    """
    check_reads_text(model)
    s = model.model.spec
    if s.encoder is None or s.decoder is not None or not isinstance(s.head, S.LMHead):
        raise ValueError(
            f"{model.name} does not predict masked words, which needs an encoder with LMHead; "
            "train one with the task MaskedLM, or use weft generate to continue a text"
        )
    mask = model.require_tokenizer.special.get("mask")
    if mask is None:
        raise ValueError(
            f"the tokenizer of {model.name} has no mask token; give a model trained on masked words"
        )
    return mask


def encode_with_masks(tokenizer: Tokenizer, text: str, mask: int) -> np.ndarray:
    """Return the tokens of a text, with the mask token for each of its names. The space before a
    mask belongs to the masked word, except for character tokenizers."""
    parts = (
        MASK.split(text)
        if tokenizer.table is None
        else re.split("|".join(map(re.escape, SPECIAL_TOKEN_NAMES["mask"])), text)
    )
    pieces: list[Any] = []
    for i, part in enumerate(parts):
        if i > 0:
            pieces.append([mask])
        if part:
            pieces.append(tokenizer.encode(part))
    return concatenate_ids(*pieces) if pieces else np.zeros(0, np.int64)


def token_text(tokenizer: Tokenizer, token: int) -> str:
    return tokenizer.decode([token]).strip() or str(tokenizer.inner.id_to_token(token) or token)
