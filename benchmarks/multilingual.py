"""One encoder for three languages: what the sampling exponent does, and what transfers from English
to German (XLM-R, arXiv:1911.02116, section 3.1; multilingual BERT; XQuAD, arXiv:1910.11856).

    python -m benchmarks.multilingual [--steps 200] [--tuning-steps 150] [--output runs]
        [--receipt FILE]

Sampling: a small BERT is pre-trained on English (wikitext-2), German (software texts) and a tenth
of Multi30k's French for the same steps at p ∝ n^α, α = 1, .7 and .3, and on English alone.
Reported: the loss and the accuracy of masked tokens on held-out text of each language.

Transfer: questions are tuned on SQuAD's English paragraphs, without those that XQuAD has too, from
the encoder of three languages (α = .3), from the English one, and from scratch; F1 and exact match
on XQuAD in English and German.

All models share one tokenizer, trained on the three languages, and one seed; a model this small
answers few questions at all. A finished run is not run again. --quick takes three steps of each
run. The last line is JSON.
"""

import gzip
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import weft
from weft import recipe as R
from weft.data.batches.mixture import MixtureStore
from weft.data.preparing.prepare import prepare
from weft.data.reading.files import find
from weft.runs import run
from weft.tasks.task import predict

from . import command, receipt
from .trials import build_run, parse, train, trial_parser

EXPONENTS = (1.0, 0.7, 0.3)
GERMAN_COLUMNS = ("en", "text", "package")
ROWS = R.Documents(sentence_boundaries=True)


def german(fraction: tuple[float, float]) -> R.Source:
    return R.Source(
        paths=("debian-en-de/pairs.tsv.gz",),
        format="tsv",
        column_names=GERMAN_COLUMNS,
        has_header=False,
        fraction=fraction,
    )


def languages(split: str) -> dict[str, R.Source]:
    wiki, french, english_part, german_part, french_part = {
        "train": ("train", "train", (0.0, 1.0), (0.0, 0.95), (0.0, 0.1)),
        "valid": ("valid", "val", (0.0, 0.1), (0.98, 1.0), (0.0, 1.0)),
    }[split]
    return {
        "en": R.Source(
            paths=(f"wikitext-2/wiki.{wiki}.tokens.gz",),
            document_boundary="heading",
            fraction=english_part,
        ),
        "de": german(german_part),
        "fr": R.Source(
            paths=(f"multi30k/{french}.fr.gz",), document_boundary="line", fraction=french_part
        ),
    }


def mixture(split: str, names: tuple[str, ...], exponent: float) -> R.Mixture:
    sources = languages(split)
    return R.Mixture(
        sources=tuple(R.NamedSource(name=name, source=sources[name]) for name in names),
        rates=R.ProportionalRates(exponent=exponent),
    )


def pretraining(names: tuple[str, ...], exponent: float, steps: int) -> R.Recipe:
    return R.Recipe(
        name=f"multilingual-{'-'.join(names)}-{exponent:g}",
        model=weft.with_dropout(weft.bert("tiny", vocab_size=8192, positions=192), 0.0),
        task=R.MaskedLM(),
        data=R.Data(
            rows=ROWS,
            tokenizer=R.WordPiece(vocab_size=8192, lowercase=False),
            train=mixture("train", names, exponent),
            valid=mixture("valid", ("en", "de", "fr"), 1.0),
        ),
        batch=R.FixedBatch(size=32, length=64),
        steps=steps,
        optimiser=R.Muon(lr=0.01, other=R.AdamW(lr=2e-3, betas=(0.9, 0.98), eps=1e-6)),
        schedule=R.LinearSchedule(warmup_steps=steps // 10),
        checkpoints=R.Checkpoints(every_steps=steps, keep=1),
    )


def masked_tokens(folder: Path) -> dict[str, Any]:
    """Loss and accuracy of masked tokens per language, and the share of each in the training
    samples.
    """
    opened = weft.open(folder, device="cpu")
    assert opened.recipe is not None
    data = opened.recipe.data
    result = dict[str, Any]()
    valid = prepare(data).valid
    assert isinstance(valid, MixtureStore)
    for name, store in valid.parts.items():
        tokens = [
            pair for row in predict(opened, opened.recipe.task, store, length=64) for pair in row
        ]
        result[name] = {
            "loss": round(sum(loss for loss, _ in tokens) / len(tokens), 4),
            "accuracy": round(sum(hit for _, hit in tokens) / len(tokens), 4),
            "tokens": len(tokens),
        }
    return result


def shares(recipe: R.Recipe) -> dict[str, float]:
    """Return how often each language is read."""
    state = build_run(recipe)
    samples: Any = run.open_training_samples(state.preprocess, state.prepared, recipe.batch.length)
    assert isinstance(state.prepared.train, MixtureStore)
    total = sum(samples.shares)
    return {
        name: round(share / total, 4)
        for name, share in zip(state.prepared.train.parts, samples.shares, strict=True)
    }


def read(path: str) -> dict[str, Any]:
    with gzip.open(find(path)[0]) as file:
        content: dict[str, Any] = json.load(file)
    return content


def write_questions(folder: Path) -> Path:
    """SQuAD's paragraphs without those of which XQuAD has a question."""
    taken = {
        question["id"]
        for article in read("xquad/xquad.en.json.gz")["data"]
        for paragraph in article["paragraphs"]
        for question in paragraph["qas"]
    }
    articles = []
    for article in read("squad/squad-v1.1-dev.json.gz")["data"]:
        paragraphs = [
            paragraph
            for paragraph in article["paragraphs"]
            if taken.isdisjoint(question["id"] for question in paragraph["qas"])
        ]
        articles.append({**article, "paragraphs": paragraphs})
    file = folder / "squad-without-xquad.json"
    file.write_text(json.dumps({"version": "1.1", "data": articles}))
    return file


def questions(
    pretrained: Path, start: bool, questions_file: Path, tokenizer: Path, steps: int
) -> R.Recipe:
    model = weft.bert("tiny", vocab_size=8192, positions=192, head=weft.SpanHead())
    return R.Recipe(
        name=f"{pretrained.name}-questions" if start else "multilingual-scratch-questions",
        model=weft.with_dropout(model, 0.1),
        task=R.QuestionAnswering(),
        data=R.Data(
            rows=R.ContextQuestions(max_length=192, stride=96, max_question_length=32),
            tokenizer=R.TokenizerFile(path=str(tokenizer)),
            train=R.Source(paths=(str(questions_file),)),
        ),
        batch=R.FixedBatch(size=16, length=192),
        steps=steps,
        optimiser=R.AdamW(lr=1e-3),
        schedule=R.LinearSchedule(warmup_steps=steps // 10),
        checkpoints=R.Checkpoints(every_steps=steps, keep=1),
        init_from=str(pretrained / "model") if start else None,
    )


def answers(folder: Path) -> dict[str, Any]:
    """F1 and exact match on XQuAD."""
    opened = weft.open(folder, device="cpu")
    return {
        language: {
            name: round(float(value), 4)
            for name, value in weft.evaluate(
                opened, f"xquad/xquad.{language}.json.gz", report=lambda line: None
            ).items()
            if name in ("f1", "exact_match", "exact")
        }
        for language in ("en", "de")
    }


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    parser = trial_parser(__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--tuning-steps", type=int, default=150)
    options = parse(parser, arguments)
    start_time = time.perf_counter()
    options.output.mkdir(parents=True, exist_ok=True)
    three = ("en", "de", "fr")
    table: dict[str, Any] = {"sampling": {}, "transfer": {}}
    folders: dict[str, Path] = {}
    tokenizer: Path | None = None
    for names, exponent in [*((three, exponent) for exponent in EXPONENTS), (("en",), 1.0)]:
        recipe = pretraining(names, exponent, options.steps)
        if tokenizer is not None:
            file = R.TokenizerFile(path=str(tokenizer))
            recipe = replace(recipe, data=replace(recipe.data, tokenizer=file))
        folder = train(recipe, options.output, options.quick)
        tokenizer = tokenizer or folder / "model" / "tokenizer.json"
        name = f"{exponent:g}" if names == three else "English alone"
        folders[name] = folder
        table["sampling"][name] = {"shares": shares(recipe), "valid": masked_tokens(folder)}
        print(
            f"{name}: {table['sampling'][name]}; {time.perf_counter() - start_time:.0f} s so far",
            flush=True,
        )
    assert tokenizer is not None
    questions_file = write_questions(options.output)
    for name, folder, start in (
        ("three languages", folders["0.3"], True),
        ("English alone", folders["English alone"], True),
        ("from scratch", folders["0.3"], False),
    ):
        recipe = questions(folder, start, questions_file, tokenizer, options.tuning_steps)
        table["transfer"][name] = answers(train(recipe, options.output, options.quick))
        print(
            f"{name}: {table['transfer'][name]}; {time.perf_counter() - start_time:.0f} s so far",
            flush=True,
        )
    if options.receipt:
        receipt.write(options.receipt, table, time.perf_counter() - start_time)
    print(json.dumps(table))
    return table


if __name__ == "__main__":
    command.run(main)
