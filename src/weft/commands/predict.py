"""The commands `weft classify`, `tag`, `answer`, `embed` and `fill`."""

import json
import sys
from collections.abc import Callable, Iterable
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple

from ..support.console import print_result, spinner
from . import Fields
from .inputs import (
    Inputs,
    inputs_of_rows,
    masked_texts,
    question_rows,
    questions_of_rows,
    text_rows,
    words_of_rows,
)
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


class Predictions(NamedTuple):
    """Rows, the model's input for each, and its predictions."""

    rows: list[Fields]
    inputs: list[Any]
    # of the inputs on the screen
    names: list[str]
    values: list[Any]
    # of the classes of the model
    labels: tuple[str, ...]


def classify(options: ClassifyOptions) -> int:
    """Classify texts, pairs of texts or images, or predict a number."""
    rows = text_rows(options, pairs=options.pairs)
    done = predict(
        options, "classify", lambda model: inputs_of_rows(options, rows, model, options.pairs)
    )
    predictions = [class_fields(done.labels, value) for value in done.values]
    return output_predictions(
        options, done.rows, predictions, map(class_line, predictions, done.names)
    )


def class_fields(names: tuple[str, ...], probabilities: list[float] | float) -> Fields:
    if not isinstance(probabilities, list):
        return {"prediction": probabilities}
    best = probabilities.index(max(probabilities))
    return {
        "prediction": names[best],
        "probability": probabilities[best],
        "probabilities": dict(zip(names, probabilities, strict=True)),
    }


def class_line(fields: Fields, name: str) -> str:
    if "probability" not in fields:
        return f"{fields['prediction']:.3f}  {name}"
    return f"{fields['prediction']}  {fields['probability']:.3f}  {name}"


def tag(options: TagOptions) -> int:
    """Tag every word of a text."""
    rows = text_rows(options)
    done = predict(options, "tag", lambda model: words_of_rows(options, rows, model))
    cut = [tags for tags in done.values if any(share == 0 for _, share in tags)]
    if cut:
        print(
            f"weft: {len(cut):,} of {len(rows):,} rows exceed the model's maximum length; "
            "their last words have no tag",
            file=sys.stderr,
        )
    predictions = list(map(tag_fields, rows, done.inputs, done.values))
    return output_predictions(options, rows, predictions, map(tag_line, predictions, done.inputs))


def tag_fields(row: Fields, words: list[str], tagged: list[tuple[str, float]]) -> Fields:
    from ..metrics.entities import find_entities

    tags = [name for name, _ in tagged]
    words_column: Fields = {} if row.get("words") == words else {"words": words}
    return words_column | {
        "prediction": tags,
        "probabilities": [share for _, share in tagged],
        "entities": [
            {
                "kind": entity.kind,
                "text": " ".join(words[entity.first : entity.last + 1]),
                "first": entity.first,
                "last": entity.last,
            }
            for entity in find_entities(tags)
            if entity.kind
        ],
    }


def tag_line(fields: Fields, words: list[str]) -> str:
    kinds = {entity["last"]: entity["kind"] for entity in fields["entities"]}
    if kinds or all(name == "O" for name in fields["prediction"]):
        return " ".join(
            f"{word} [{kinds[i]}]" if i in kinds else word for i, word in enumerate(words)
        )
    tagged = zip(words, fields["prediction"], strict=True)
    return " ".join(f"{word}/{name}" for word, name in tagged)


def answer(options: AnswerOptions) -> int:
    """Answer a question with a span of a text."""
    rows, format = question_rows(options)
    inputs = questions_of_rows(options, rows)
    done = predict(options, "answer", lambda model: inputs)
    predictions = [answer_fields(value, options.no_answer_threshold) for value in done.values]
    texts = [prediction["prediction"] for prediction in predictions]
    if format == "squad" and options.output and options.output.endswith(".json"):
        # The format of SQuAD's evaluation script
        by_id = {row["id"]: text for row, text in zip(rows, texts, strict=True)}
        with open(options.output, "w", encoding="utf-8") as file:
            json.dump(by_id, file, ensure_ascii=False)
        return report_written(len(rows), options.output)
    return output_predictions(options, rows, predictions, (text or "(no answer)" for text in texts))


def answer_fields(answer: Any, threshold: float | None) -> Fields:
    """Return an answer as plain values; null if "no answer" scores more than the threshold above
    the best span."""
    none = threshold is not None and answer.no_answer_margin > threshold
    return {
        "prediction": "" if none else answer.text,
        "start": -1 if none else answer.start,
        "end": -1 if none else answer.end,
        "score": finite_or_none(answer.score),
        "no_answer": finite_or_none(answer.no_answer_margin),
    }


def finite_or_none(score: float) -> float | None:
    """Return None for a non-finite score, which JSON cannot represent."""
    return score if isfinite(score) else None


def embed(options: EmbedOptions) -> int:
    """Compute one embedding vector per text or image. With --output vectors.npy, writes one array
    of shape (inputs, width)."""
    rows = text_rows(options, suffixes=(*TABLE_SUFFIXES, ".npy"))

    def read(model: "OpenModel") -> Inputs:
        rows_read, pairs, names = inputs_of_rows(options, rows, model)
        return Inputs(rows_read, [first for first, _ in pairs], names)

    done = predict(options, "embed", read, pooling=options.pooling, normalised=options.normalise)
    if options.output and options.output.lower().endswith(".npy"):
        import numpy as np

        with open(options.output, "wb") as file:
            np.save(file, np.array(done.values, np.float32), allow_pickle=False)
        return report_written(len(done.rows), options.output)
    vectors = [{"vector": vector} for vector in done.values]
    return output_predictions(
        options, done.rows, vectors, map(vector_line, done.values, done.names)
    )


def vector_line(vector: list[float], name: str) -> str:
    first = ", ".join(f"{x:.4f}" for x in vector[:4])
    return f"[{first}, … {len(vector)} numbers]  {name}"


def fill(options: FillOptions) -> int:
    """Predict masked words. Example: weft fill NAME "the man went to the [MASK]"."""
    rows = text_rows(options)
    done = predict(
        options, "fill", lambda model: masked_texts(options, rows, model), top=options.top_k
    )
    guesses = [{"guesses": list(map(guess_fields, masks))} for masks in done.values]
    pages: Iterable[str] = map(guess_lines, done.values)
    if len(rows) > 1:
        pages = (f"\n{text}\n{page}" for text, page in zip(done.inputs, pages, strict=True))
    return output_predictions(options, rows, guesses, pages)


def guess_fields(guesses: list[tuple[str, float]]) -> list[Fields]:
    return [{"word": word, "probability": share} for word, share in guesses]


def guess_lines(masks: list[list[tuple[str, float]]]) -> str:
    """Return one line per mask."""
    return "\n".join("  ".join(f"{word} {share:.3f}" for word, share in mask) for mask in masks)


def open_for_prediction(options: BatchOptions) -> tuple["OpenModel", "PredictOptions"]:
    with spinner(f"opening {options.name}"):
        from ..inference.open_model import open_model
        from ..tasks.predict import PredictOptions

        model = open_model(options.name, device=options.device)
        return model, PredictOptions(
            batch_size=options.batch_size, bf16=options.precision == "bf16"
        )


def predict(
    options: PredictionOptions,
    method: str,
    read: Callable[["OpenModel"], Inputs],
    **settings: Any,
) -> Predictions:
    """Open the model, read its inputs and predict, with a progress line.

    Args:
        options: the options of the command.
        method: a function of `inference.methods`.
        read: returns the model's inputs from the rows.
        settings: further arguments of the method.
    """
    model, predict_options = open_for_prediction(options)
    rows, inputs, names = read(model)
    from ..inference import methods
    from ..runs.logs.progress import CountProgressLine

    with CountProgressLine("predicted", text=f"predicting with {options.name}") as progress:
        values = getattr(methods, method)(
            model, inputs, options=predict_options._replace(progress=progress), **settings
        )
    return Predictions(rows, inputs, names, values, methods.label_names(model))


def output_predictions(
    options: PredictionOptions,
    rows: list[Fields],
    predictions: list[Fields],
    lines: Iterable[str],
) -> int:
    """Write the rows with their predictions, or print one line per row."""
    add_columns(rows, predictions)
    if options.output:
        write_output_rows(options.output, rows)
        return report_written(len(rows), options.output)
    print_result(options.json, rows, lambda width: "\n".join(lines).lstrip("\n"))
    return 0
