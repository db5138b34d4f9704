"""`weft classify`, `tag`, `answer`, `embed` and `fill`."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import isfinite
from typing import TYPE_CHECKING

from ..console import print_result, spinner
from ..options.shared import ModelOptions
from . import Fields
from .files import check_keeps_inputs, check_output_file, check_outside_model
from .inputs import columns_of, input_texts, questions, rows_and_inputs, text_pairs, words_of
from .predict_options import (
    AnswerOptions,
    BatchOptions,
    ClassifyOptions,
    EmbedOptions,
    FillOptions,
    PredictionOptions,
    TagOptions,
)
from .rows import TABLE_SUFFIXES, add_columns, report_written, write_output_rows

if TYPE_CHECKING:
    from ..inference.open_model import OpenModel
    from ..tasks.predict import PredictOptions


def classify(options: ClassifyOptions) -> int:
    """Classify texts, pairs of texts or images, or predict a number."""
    rows = input_texts(options, pairs=options.pairs)
    model, predict_options = open_for_prediction(options)
    rows, inputs, input_names = rows_and_inputs(options, rows, model, options.pairs)
    from ..inference import methods

    with prediction_progress(options, predict_options) as predict_options:
        predictions = methods.classify(model, inputs, predict_options)
    names = methods.label_names(model)

    def class_fields(probabilities: list[float] | float) -> Fields:
        if not isinstance(probabilities, list):
            return {"prediction": probabilities}
        best = probabilities.index(max(probabilities))
        return {
            "prediction": names[best],
            "probability": probabilities[best],
            "probabilities": dict(zip(names, probabilities, strict=True)),
        }

    def line(fields: Fields, input_name: str) -> str:
        label_text = (
            f"{fields['prediction']}  {fields['probability']:.3f}"
            if "probability" in fields
            else f"{fields['prediction']:.3f}"
        )
        return f"{label_text}  {input_name}"

    return output_predictions(
        options,
        rows,
        [class_fields(probabilities) for probabilities in predictions],
        lambda fields_of_rows: "\n".join(map(line, fields_of_rows, input_names)),
    )


def tag(options: TagOptions) -> int:
    """Tag every word of a text."""
    rows = input_texts(options)
    model, predict_options = open_for_prediction(options)
    sentences = words_of(options, rows, model)
    from ..inference import methods
    from ..metrics.entities import find_entities

    with prediction_progress(options, predict_options) as predict_options:
        predictions = methods.tag(model, sentences, predict_options)
    if cut := sum(any(share == 0 for _, share in tags) for tags in predictions):
        print(
            f"weft: {cut:,} of {len(rows):,} rows are longer than the model reads; their last words have no tag",
            file=sys.stderr,
        )

    def tag_fields(row: Fields, words: list[str], tagged: list[tuple[str, float]]) -> Fields:
        tags = [name for name, _ in tagged]
        words_column: Fields = {} if row.get("words") == words else {"words": words}
        return words_column | {
            "prediction": tags,
            "probabilities": [share for _, share in tagged],
            "entities": [
                {
                    "kind": e.kind,
                    "text": " ".join(words[e.first : e.last + 1]),
                    "first": e.first,
                    "last": e.last,
                }
                for e in find_entities(tags)
                if e.kind
            ],
        }

    def line(fields: Fields, words: list[str]) -> str:
        kinds = {e["last"]: e["kind"] for e in fields["entities"]}
        if not kinds and not all(name == "O" for name in fields["prediction"]):
            return " ".join(
                f"{word}/{name}" for word, name in zip(words, fields["prediction"], strict=True)
            )
        return " ".join(
            word + (f" [{kinds[i]}]" if i in kinds else "") for i, word in enumerate(words)
        )

    return output_predictions(
        options,
        rows,
        [*map(tag_fields, rows, sentences, predictions)],
        lambda fields_of_rows: "\n".join(map(line, fields_of_rows, sentences)),
    )


def answer(options: AnswerOptions) -> int:
    """Answer a question with a span of a text."""
    check_output_file(options.output, TABLE_SUFFIXES)
    check_outside_model("--output", [options.output], options.name)
    check_keeps_inputs("--output", [options.output or ""], [options.input or ""])
    rows, official = questions(options)
    columns = columns_of(options)
    for row in rows:
        if not all(isinstance(row.get(name), str) and row[name].strip() for name in columns):
            raise ValueError(
                f"give a question and a context; {str(row)[:80]} lacks one of them (columns {' and '.join(map(repr, columns))})"
            )
    model, predict_options = open_for_prediction(options)
    from ..inference import methods

    with prediction_progress(options, predict_options) as predict_options:
        answers = methods.answer(
            model, [(row[columns[0]], row[columns[1]]) for row in rows], predict_options
        )
    predictions = []
    for answer in answers:
        none = (
            options.no_answer_threshold is not None
            and answer.no_answer_margin > options.no_answer_threshold
        )
        predictions.append(
            {
                "prediction": "" if none else answer.text,
                "start": -1 if none else answer.start,
                "end": -1 if none else answer.end,
                "score": finite_or_none(answer.score),
                "no_answer": finite_or_none(answer.no_answer_margin),
            }
        )
    if (
        official and options.output and options.output.endswith(".json")
    ):  # as SQuAD's own script reads them
        import json

        with open(options.output, "w", encoding="utf-8") as file:
            json.dump(
                {
                    row["id"]: answered["prediction"]
                    for row, answered in zip(rows, predictions, strict=True)
                },
                file,
                ensure_ascii=False,
            )
        return report_written(len(rows), options.output)
    return output_predictions(
        options,
        rows,
        predictions,
        lambda answers: "\n".join(answered["prediction"] or "(no answer)" for answered in answers),
    )


def finite_or_none(score: float) -> float | None:
    """Return None for a score that is not finite, which JSON cannot hold."""
    return score if isfinite(score) else None


def embed(options: EmbedOptions) -> int:
    """Compute one embedding vector per text or image. With --output vectors.npy, writes one array of the shape (inputs, width)."""
    rows = input_texts(options, suffixes=(*TABLE_SUFFIXES, ".npy"))
    model, predict_options = open_for_prediction(options)
    rows, inputs, input_names = rows_and_inputs(options, rows, model)
    items = [first for first, _ in inputs]
    from ..inference import methods

    with prediction_progress(options, predict_options) as predict_options:
        embeddings = methods.embed(
            model, items, options.pooling, options.normalise, predict_options
        )
    if options.output and options.output.lower().endswith(".npy"):
        import numpy as np

        with open(options.output, "wb") as file:
            np.save(file, np.array(embeddings, np.float32), allow_pickle=False)
        return report_written(len(rows), options.output)

    def line(name: str, embedding: list[float]) -> str:
        first = ", ".join(f"{x:.4f}" for x in embedding[:4])
        return f"[{first}, … {len(embedding)} numbers]  {name}"

    return output_predictions(
        options,
        rows,
        [{"vector": embedding} for embedding in embeddings],
        lambda _: "\n".join(map(line, input_names, embeddings)),
    )


def fill(options: FillOptions) -> int:
    """Predict masked words. Example: weft fill NAME "the man went to the [MASK]"."""
    rows = input_texts(options)
    model, predict_options = open_for_prediction(options)
    texts = [first for first, _ in text_pairs(options, rows, model)]
    from ..inference import methods

    with prediction_progress(options, predict_options) as predict_options:
        predictions = methods.fill(model, texts, options.top_k, predict_options)
    filled = [
        {
            "guesses": [
                [{"word": word, "probability": share} for word, share in place] for place in masks
            ]
        }
        for masks in predictions
    ]

    def line(text: str, guesses: list[list[tuple[str, float]]]) -> str:
        return "\n".join(
            ["", text] * (len(texts) > 1)
            + ["  ".join(f"{word} {share:.3f}" for word, share in place) for place in guesses]
        )

    return output_predictions(
        options, rows, filled, lambda _: "\n".join(map(line, texts, predictions)).lstrip("\n")
    )


def open_for_prediction(options: BatchOptions) -> tuple["OpenModel", "PredictOptions"]:
    with spinner(f"opening {options.name}"):
        from ..inference.open_model import open_model
        from ..tasks.predict import PredictOptions

        model = open_model(options.name, device=options.device)
        return model, PredictOptions(
            batch_size=options.batch_size, bf16=options.precision == "bf16"
        )


@contextmanager
def prediction_progress(
    options: ModelOptions, predict_options: "PredictOptions"
) -> "Iterator[PredictOptions]":
    """Show how many rows are done while the model predicts."""
    from ..runs.progress import CountProgressLine

    with CountProgressLine("predicted", text=f"predicting with {options.name}") as progress:
        yield predict_options._replace(progress=progress)


def output_predictions(
    options: PredictionOptions,
    rows: list[Fields],
    predictions: list[Fields],
    page: Callable[[list[Fields]], str],
) -> int:
    add_columns(rows, predictions)
    if options.output:
        write_output_rows(options.output, rows)
        return report_written(len(rows), options.output)
    print_result(options.json, rows, lambda width: page(predictions))
    return 0
