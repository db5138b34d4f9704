"""`weft classify`, `tag`, `answer`, `embed` and `fill`."""

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import isfinite
from typing import TYPE_CHECKING

from ..console import print_result, spinner
from . import COLUMN_PREFIX_HELP, AddCommand, Fields
from .inputs import columns_of, input_texts, questions, rows_and_inputs, text_pairs, words_of
from .options import (
    add_batch_size,
    add_column_names,
    add_columns_option,
    add_device,
    add_input,
    add_max_bad_rows,
    add_model_name,
    add_precision,
    add_texts,
    finite_float,
    positive_int,
)
from .rows import (
    TABLE_SUFFIXES,
    add_columns,
    check_keeps_inputs,
    check_output_file,
    check_outside_model,
    report_written,
    write_output_rows,
)

if TYPE_CHECKING:
    from ..inference.open_model import OpenModel
    from ..tasks.predict import PredictOptions


def classify(args: argparse.Namespace) -> int:
    rows = input_texts(args)
    model, options = open_for_prediction(args)
    rows, inputs, input_names = rows_and_inputs(args, rows, model)
    from ..inference import methods

    with prediction_progress(args, options) as options:
        predictions = methods.classify(model, inputs, options)
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
        args,
        rows,
        [class_fields(probabilities) for probabilities in predictions],
        lambda fields_of_rows: "\n".join(map(line, fields_of_rows, input_names)),
    )


def tag(args: argparse.Namespace) -> int:
    rows = input_texts(args)
    model, options = open_for_prediction(args)
    sentences = words_of(args, rows, model)
    from ..inference import methods
    from ..metrics.entities import find_entities

    with prediction_progress(args, options) as options:
        predictions = methods.tag(model, sentences, options)
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
        args,
        rows,
        [*map(tag_fields, rows, sentences, predictions)],
        lambda fields_of_rows: "\n".join(map(line, fields_of_rows, sentences)),
    )


def answer(args: argparse.Namespace) -> int:
    check_output_file(args.output, TABLE_SUFFIXES)
    check_keeps_inputs("--output", [args.output or ""], [args.file or ""])
    check_outside_model("--output", [args.output], args.name)
    rows, official = questions(args)
    columns = columns_of(args)
    for row in rows:
        if not all(isinstance(row.get(name), str) and row[name].strip() for name in columns):
            raise ValueError(
                f"give a question and a context; {str(row)[:80]} lacks one of them (columns {' and '.join(map(repr, columns))})"
            )
    model, options = open_for_prediction(args)
    from ..inference import methods

    with prediction_progress(args, options) as options:
        answers = methods.answer(
            model, [(row[columns[0]], row[columns[1]]) for row in rows], options
        )
    predictions = []
    for answer in answers:
        none = (
            args.no_answer_threshold is not None
            and answer.no_answer_margin > args.no_answer_threshold
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
        official and args.output and args.output.endswith(".json")
    ):  # as SQuAD's own script reads them
        import json

        with open(args.output, "w", encoding="utf-8") as file:
            json.dump(
                {
                    row["id"]: answered["prediction"]
                    for row, answered in zip(rows, predictions, strict=True)
                },
                file,
                ensure_ascii=False,
            )
        return report_written(len(rows), args.output)
    return output_predictions(
        args,
        rows,
        predictions,
        lambda answers: "\n".join(answered["prediction"] or "(no answer)" for answered in answers),
    )


def finite_or_none(score: float) -> float | None:
    """Return None for a score that is not finite, which JSON cannot hold."""
    return score if isfinite(score) else None


def embed(args: argparse.Namespace) -> int:
    rows = input_texts(args, (*TABLE_SUFFIXES, ".npy"))
    model, options = open_for_prediction(args)
    rows, inputs, input_names = rows_and_inputs(args, rows, model)
    items = [first for first, _ in inputs]
    from ..inference import methods

    with prediction_progress(args, options) as options:
        embeddings = methods.embed(model, items, args.pooling, args.normalise, options)
    if args.output and args.output.lower().endswith(".npy"):
        import numpy as np

        with open(args.output, "wb") as file:
            np.save(file, np.array(embeddings, np.float32), allow_pickle=False)
        return report_written(len(rows), args.output)

    def line(name: str, embedding: list[float]) -> str:
        first = ", ".join(f"{x:.4f}" for x in embedding[:4])
        return f"[{first}, … {len(embedding)} numbers]  {name}"

    return output_predictions(
        args,
        rows,
        [{"vector": embedding} for embedding in embeddings],
        lambda _: "\n".join(map(line, input_names, embeddings)),
    )


def fill(args: argparse.Namespace) -> int:
    rows = input_texts(args)
    model, options = open_for_prediction(args)
    texts = [first for first, _ in text_pairs(args, rows, model)]
    from ..inference import methods

    with prediction_progress(args, options) as options:
        predictions = methods.fill(model, texts, args.top_k, options)
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
        args, rows, filled, lambda _: "\n".join(map(line, texts, predictions)).lstrip("\n")
    )


def open_for_prediction(args: argparse.Namespace) -> tuple["OpenModel", "PredictOptions"]:
    with spinner(f"opening {args.name}"):
        from ..inference.open_model import open_model
        from ..tasks.predict import PredictOptions

        model = open_model(args.name, device=args.device)
        return model, PredictOptions(batch_size=args.batch_size, bf16=args.precision == "bf16")


@contextmanager
def prediction_progress(
    args: argparse.Namespace, options: "PredictOptions"
) -> "Iterator[PredictOptions]":
    """Show how many rows are done while the model predicts."""
    from ..runs.progress import CountProgressLine

    with CountProgressLine("predicted", text=f"predicting with {args.name}") as progress:
        yield options._replace(progress=progress)


# What goes out


def output_predictions(
    args: argparse.Namespace,
    rows: list[Fields],
    predictions: list[Fields],
    page: Callable[[list[Fields]], str],
) -> int:
    add_columns(rows, predictions)
    if args.output:
        write_output_rows(args.output, rows)
        return report_written(len(rows), args.output)
    print_result(args, rows, lambda width: page(predictions))
    return 0


def add(verb: AddCommand) -> None:
    def common(
        parser: argparse.ArgumentParser,
        columns: str = "column of the text",
        also: str = "",
        takes_texts: bool = True,
    ) -> argparse.ArgumentParser:
        add_model_name(parser)
        if takes_texts:
            add_texts(parser)
        add_input(parser)
        parser.add_argument(
            "-o",
            "--output",
            metavar="FILE",
            help=f"output file: .jsonl, .json, .csv, .tsv or .parquet, the rows with their predictions; {COLUMN_PREFIX_HELP}{also}",
        )
        add_columns_option(parser, columns)
        add_column_names(parser)
        add_max_bad_rows(parser, 0.0)
        add_batch_size(parser)
        add_precision(parser)
        add_device(parser)
        return parser

    common(
        verb(classify, "classify texts, pairs of texts or images, or predict a number"),
        "column of the text, or both columns of a pair",
    ).add_argument("--pairs", action="store_true", help="take the texts in pairs")
    parser = common(verb(tag, "tag every word of a text"), "column of the text or of the words")
    parser.add_argument(
        "--pre-split",
        action="store_true",
        help="the text is already tokenised: split at spaces only",
    )
    parser.add_argument(
        "--language",
        default="en",
        help="language whose rules split words and punctuation (default: en)",
    )
    parser = common(
        verb(answer, "answer a question with a span of a text"),
        "columns of the question and the context",
        takes_texts=False,
    )
    parser.add_argument("--question", metavar="TEXT", help="question to answer")
    parser.add_argument("--context", metavar="TEXT", help="text that contains the answer")
    parser.add_argument(
        "--no-answer-threshold",
        type=finite_float,
        metavar="X",
        help="give no answer where that scores more than X above the best span (default: always answer)",
    )
    parser = common(
        verb(
            embed,
            "compute one embedding vector per text or image",
            "With --output vectors.npy, writes one array of the shape (inputs, width).",
        ),
        also="; or .npy, the vectors alone",
    )
    parser.add_argument(
        "--pooling",
        choices=("mean", "max", "cls", "last"),
        help="how the vectors of the tokens become one (default: as modules.json says, else the mean; of images the class token)",
    )
    parser.add_argument(
        "--normalise",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="scale vectors to length 1 (default: as the folder's modules.json says, else no)",
    )
    common(
        verb(
            fill,
            "predict masked words",
            'Example: weft fill NAME "the man went to the [MASK]".',
        )
    ).add_argument(
        "--top-k",
        type=positive_int,
        default=5,
        metavar="N",
        help="number of predictions per mask (default: 5)",
    )
