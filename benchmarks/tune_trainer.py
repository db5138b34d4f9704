"""The baseline of `benchmarks.tune`: the same tasks with transformers' Trainer, set up as in its
documentation.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import SequentialSampler
from transformers import (
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    DataCollatorForTokenClassification,
    DataCollatorWithPadding,
    Trainer,
)

from weft.metrics.classification import classification_metrics
from weft.metrics.correlation import regression_metrics
from weft.metrics.entities import entity_f1
from weft.metrics.squad import AnswerPrediction
from weft.metrics.squad import squad_metrics as squad_scores
from weft.tasks.question_answering import best_span

NAMES = ("accuracy", "f1", "matthews", "pearson", "spearman", "exact_match")


class Side(NamedTuple):
    """A split: rows of numbers, the names of the labels, and what its answers are scored by."""

    rows: list[dict[str, Any]]
    labels: list[str]
    truth: Any = None


def lines(folder: Path, part: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / f"{part}.jsonl").read_text().splitlines()]


def examples(
    folder: Path, part: str, tokenizer: Any, length: int, labels: list[str] | None = None
) -> Side:
    rows = lines(folder, part)
    number = isinstance(rows[0]["label"], float)
    labels = [] if number else labels or sorted({row["label"] for row in rows})
    texts = [
        [row["first"] for row in rows],
        *([[row["second"] for row in rows]] if "second" in rows[0] else []),
    ]
    held = tokenizer(*texts, truncation=True, max_length=length)
    known = [row["label"] if number else labels.index(row["label"]) for row in rows]
    return Side(
        [{name: held[name][i] for name in held} | {"labels": known[i]} for i in range(len(rows))],
        labels,
        known,
    )


def tagged(
    folder: Path, part: str, tokenizer: Any, length: int, labels: list[str] | None = None
) -> Side:
    rows = lines(folder, part)
    labels = labels or sorted(
        {tag for row in lines(folder, "train") + lines(folder, "dev") for tag in row["tags"]},
        key=lambda tag: (tag != "O", tag[2:], tag),
    )
    held = tokenizer(
        [row["words"] for row in rows], is_split_into_words=True, truncation=True, max_length=length
    )
    made = []
    for i, row in enumerate(rows):
        words = held.word_ids(i)
        first = [w is not None and (j == 0 or words[j - 1] != w) for j, w in enumerate(words)]
        tags = [
            labels.index(row["tags"][w]) if asked else -100
            for w, asked in zip(words, first, strict=True)
        ]
        made.append({name: held[name][i] for name in held} | {"labels": tags})
    return Side(made, labels, [row["tags"] for row in rows])


def asked(
    folder: Path, part: str, tokenizer: Any, length: int, labels: list[str] | None = None
) -> Side:
    """Windows with a stride of 128 between their starts, as Weft has them: `stride` here is how
    much two share.
    """
    articles = json.loads((folder / f"{part}.json").read_text())["data"]
    every = [
        (q, p["context"]) for article in articles for p in article["paragraphs"] for q in p["qas"]
    ]
    made = []
    for question, context in every:
        width = (
            length - 3 - len(tokenizer(question["question"], add_special_tokens=False)["input_ids"])
        )
        held = tokenizer(
            question["question"],
            context,
            truncation="only_second",
            max_length=length,
            stride=max(0, width - 128),
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
        )
        answer = question["answers"][0]
        begin = answer["answer_start"]
        end = answer["answer_start"] + len(answer["text"])
        for i in range(len(held["input_ids"])):
            own = [j for j, side in enumerate(held.sequence_ids(i)) if side == 1]
            spans = held["offset_mapping"][i]
            touched = [j for j in own if spans[j][0] < end and spans[j][1] > begin]
            whole = touched and spans[own[0]][0] <= begin and spans[own[-1]][1] >= end
            made.append(
                {name: held[name][i] for name in ("input_ids", "token_type_ids", "attention_mask")}
                | {
                    "start_positions": touched[0] if whole else 0,
                    "end_positions": touched[-1] if whole else 0,
                    "window": (question["id"], own[0], own[-1] + 1, spans),
                }
            )
    contexts = {q["id"]: context for q, context in every}
    return Side(
        made, [], (contexts, {q["id"]: [a["text"] for a in q["answers"]] for q, _ in every})
    )


def by_length(side: Side) -> Side:
    """The longest first, so that little is padded when it is looked at."""
    order = sorted(range(len(side.rows)), key=lambda i: -len(side.rows[i]["input_ids"]))
    return Side(
        [side.rows[i] for i in order],
        side.labels,
        side.truth if isinstance(side.truth, tuple) else [side.truth[i] for i in order],
    )


class Ordered(Trainer):
    """Looks at rows in their order: where training is grouped by length, the Trainer's own looks
    are too, and its answers come shuffled.
    """

    def _get_eval_sampler(self, eval_dataset: Any) -> SequentialSampler:
        return SequentialSampler(eval_dataset)


READERS = {
    "classify": examples,
    "pair": examples,
    "regress": examples,
    "tag": tagged,
    "answer": asked,
}


def score(side: Side, said: Any) -> dict[str, float]:
    """By Weft's own functions, whose oracles are in its tests."""
    if not side.labels and isinstance(side.truth, tuple):
        return named(squad_scores(*answers(side, said)))
    if not side.labels:
        return named(regression_metrics(said[:, 0].tolist(), side.truth))
    if isinstance(side.truth[0], list):
        most = side.labels.index("O")
        tags = []
        for row, logits, true in zip(side.rows, said, side.truth, strict=True):
            own = [
                int(np.argmax(logits[j])) for j, label in enumerate(row["labels"]) if label != -100
            ]
            tags.append([side.labels[tag] for tag in own + [most] * (len(true) - len(own))])
        return named(entity_f1(tags, side.truth))
    return named(
        classification_metrics(said.argmax(-1).tolist(), side.truth, range(len(side.labels)))
    )


def named(scores: Any) -> dict[str, float]:
    return {name: number for name, number in scores if name in NAMES}


def answers(side: Side, said: Any) -> tuple[dict[str, AnswerPrediction], dict[str, list[str]]]:
    contexts, right = side.truth
    found: dict[str, tuple[float, str]] = {}
    for i, row in enumerate(side.rows):
        name, first, last, spans = row["window"]
        start, end = (
            torch.tensor(np.asarray(part[i][: len(spans)], np.float32))[None] for part in said
        )
        best = best_span(start, end, torch.tensor([[first, last]]), 30)
        text = contexts[name][spans[int(best.start_B)][0] : spans[int(best.end_B)][1]]
        if name not in found or float(best.score_B) > found[name][0]:
            found[name] = float(best.score_B), text
    return {name: AnswerPrediction(text) for name, (_, text) in found.items()}, right


def trainer(
    checkpoint: str, arguments: Any, tokenizer: Any, train: Side, dev: Side, kind: str
) -> Trainer:
    kinds: dict[str, Any] = {
        "tag": AutoModelForTokenClassification,
        "answer": AutoModelForQuestionAnswering,
    }
    count = {} if kind == "answer" else {"num_labels": len(train.labels) or 1}
    more = {"problem_type": "regression"} if kind == "regress" else {}
    model = kinds.get(kind, AutoModelForSequenceClassification).from_pretrained(
        checkpoint, **count, **more
    )
    collate = (
        DataCollatorForTokenClassification(tokenizer)
        if kind == "tag"
        else DataCollatorWithPadding(tokenizer)
    )
    dev = by_length(dev)
    shown = [{n: v for n, v in row.items() if n != "window"} for row in train.rows]
    held = [{n: v for n, v in row.items() if n != "window"} for row in dev.rows]
    return Ordered(
        model=model,
        args=arguments,
        train_dataset=shown,
        eval_dataset=held,
        data_collator=collate,
        compute_metrics=lambda p: score(dev, p.predictions),
    )


def test(made: Trainer, side: Side) -> dict[str, float]:
    made.compute_metrics = None
    side = by_length(side)
    # Any: a Trainer asks for no more than a length and items
    shown: Any = [{n: v for n, v in row.items() if n != "window"} for row in side.rows]
    return score(
        side,
        made.predict(shown).predictions,
    )
