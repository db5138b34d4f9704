"""Built-in tasks pass the public conformance check."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

import weft
from tests.inference.small import TEXTS
from tests.tasks.cases import SMALL, electra
from tests.tasks.scenes import detector, scenes
from tests.tasks.tuning import PATCHES, photograph
from weft import recipe as R
from weft import spec as S
from weft.data.shards.store import Store
from weft.support.registry import choice, implements, members
from weft.tasks.base import Batch
from weft.tasks.classification import ClassificationTask
from weft.testing import check_task, small_store

import numpy as np  # isort: skip

LABELS = ("yes", "no", "perhaps")
DOCUMENTS = [{"text": f"{a} {b}"} for a in TEXTS for b in TEXTS]
PAIRS = [{"source": a, "target": b} for a, b in zip(TEXTS, TEXTS[1:] + TEXTS[:1], strict=True)]


class Case(NamedTuple):
    task: R.Task
    spec: S.Spec
    store: Store
    more: dict[str, Any] = {}


def shaped(family: str, vocabulary: int, **more: Any) -> S.Spec:
    sizes = {**SMALL, "vocab_size": vocabulary}
    if family in ("bert", "t5", "bart", "transformer"):
        sizes["hidden"] = 32
    if family in ("bert", "gpt2", "bart"):
        sizes["positions"] = 64
    if family == "t5":
        sizes["head_dim"] = 8
    return S.with_dropout(getattr(weft, family)(**sizes, **more), 0.0)


def text_case(
    task: R.Task,
    family: str,
    rows: list[dict[str, Any]],
    schema: R.RowSchema,
    head: Any = None,
    labels: tuple[str, ...] | None = None,
) -> Case:
    store, tokenizer = small_store(rows, schema, labels, R.WordPiece(vocab_size=300, sentinels=9))
    spec = shaped(family, tokenizer.size)
    return Case(task, spec if head is None else S.replace(spec, head=head), store)


def labelled(number: bool = False) -> list[dict[str, Any]]:
    return [
        {"text": text, "label": float(i % 4) if number else LABELS[i % 3]}
        for i, text in enumerate(TEXTS)
    ]


def questions(folder: Path) -> Case:
    rows = [
        {
            "id": str(i),
            "question": "where ?",
            "context": text,
            "answer_start": 0,
            "answer_end": len(text.split()[0]),
        }
        for i, text in enumerate(TEXTS)
    ]
    asked = [
        {
            "context": row["context"],
            "qas": [
                {
                    "id": row["id"],
                    "question": row["question"],
                    "answers": [{"text": row["context"][: row["answer_end"]], "answer_start": 0}],
                }
            ],
        }
        for row in rows
    ]
    path = folder / "squad.json"
    path.write_text(json.dumps({"data": [{"paragraphs": asked}]}))
    schema = R.ContextQuestions(max_length=32, stride=8, max_question_length=8)
    case = text_case(R.QuestionAnswering(), "bert", rows, schema, S.SpanHead())
    return case._replace(more={"source": R.Source(paths=(str(path),), format="squad")})


def images() -> Store:
    generator = np.random.default_rng(0)
    rows = [{"image": photograph(generator), "label": LABELS[i % 3]} for i in range(6)]
    return small_store(rows, R.LabelledImages(), LABELS, None)[0]


def replaced() -> Case:
    case = text_case(R.MaskedLM(), "bert", DOCUMENTS, R.Documents(sentence_boundaries=True))
    vocabulary = case.store.meta.vocab_size
    model, generator = (
        S.replace(own, source=S.replace(own.source, vocab_size=vocabulary)) for own in electra()
    )
    return Case(R.ReplacedTokenDetection(generator=generator), model, case.store)


def distilled() -> Case:
    case = text_case(R.CausalLM(), "gpt2", DOCUMENTS, R.Documents())
    teacher = weft.build(case.spec, seed=3, dtype=torch.float64)
    return case._replace(task=R.Distillation(teacher="teacher"), more={"teacher": teacher})


def instructed() -> Case:
    talks = [
        {
            "messages": [
                {"role": "user", "content": pair["source"]},
                {"role": "assistant", "content": pair["target"]},
            ]
        }
        for pair in PAIRS
    ]
    template = R.ChatTemplate(start="{role} : ", end=" .")
    case = text_case(R.InstructionTuning(), "gpt2", talks, R.Conversations(template=template))
    return case._replace(more={"length": 64})


def preferred(task: R.Task, head: Any = None) -> Case:
    rows = [
        {"prompt": a, "chosen": b, "rejected": a + " " + b}
        for a, b in zip(TEXTS, TEXTS[1:] + TEXTS[:1], strict=True)
    ]
    case = text_case(task, "gpt2", rows, R.Preferences(), head)
    if head is not None:
        return case
    return case._replace(more={"teacher": weft.build(case.spec, seed=3, dtype=torch.float64)})


CLASSES = S.ClassifierHead(num_labels=3)
CASES: dict[str, Callable[[Path], Case]] = {
    "CausalLM": lambda _: text_case(R.CausalLM(), "gpt2", DOCUMENTS, R.Documents()),
    "MaskedLM": lambda _: text_case(
        R.MaskedLM(), "bert", DOCUMENTS, R.Documents(sentence_boundaries=True)
    ),
    "ReplacedTokenDetection": lambda _: replaced(),
    "SpanCorruption": lambda _: text_case(R.SpanCorruption(), "t5", DOCUMENTS, R.Documents()),
    "Denoising": lambda _: text_case(
        R.Denoising(), "bart", DOCUMENTS, R.Documents(sentence_boundaries=True)
    ),
    "Translation": lambda _: text_case(
        R.Translation(), "transformer", PAIRS, R.SourceTargetPairs()
    ),
    "TextToText": lambda _: text_case(R.TextToText(), "t5", PAIRS, R.SourceTargetPairs()),
    "Classification": lambda _: text_case(
        R.Classification(), "bert", labelled(), R.LabelledTexts(), CLASSES, LABELS
    ),
    "Regression": lambda _: text_case(
        R.Regression(),
        "bert",
        labelled(number=True),
        R.LabelledTexts(numeric_label=True),
        S.ClassifierHead(num_labels=1),
    ),
    "MultipleChoice": lambda _: text_case(
        R.MultipleChoice(),
        "bert",
        [
            {"context": text, "ending0": TEXTS[0], "ending1": TEXTS[5], "label": i % 2}
            for i, text in enumerate(TEXTS)
        ],
        R.ChoiceQuestions(endings=("ending0", "ending1")),
        S.ClassifierHead(num_labels=1),
    ),
    "TokenClassification": lambda _: text_case(
        R.TokenClassification(),
        "bert",
        [
            {
                "words": text.split(),
                "tags": ["B-x" if i % 3 else "O" for i, _ in enumerate(text.split())],
            }
            for text in TEXTS
        ],
        R.TaggedWords(),
        S.TokenClassifierHead(num_labels=2),
        ("O", "B-x"),
    ),
    "QuestionAnswering": questions,
    "MaskedAutoencoding": lambda _: Case(
        R.MaskedAutoencoding(),
        weft.mae(**PATCHES, decoder_depth=2, decoder_width=8, decoder_heads=2, decoder_hidden=16),
        images(),
    ),
    "Distillation": lambda _: distilled(),
    "Detection": lambda _: Case(R.Detection(), detector(), scenes()),
    "Detection with anchors": lambda _: Case(
        R.Detection(denoising=R.DenoisingQueries(groups=2)), detector("dab_detr"), scenes()
    ),
    "InstructionTuning": lambda _: instructed(),
    "PreferenceTuning": lambda _: preferred(R.PreferenceTuning(reference="reference")),
    "RewardModelling": lambda _: preferred(
        R.RewardModelling(), S.ClassifierHead(num_labels=1, pooling="last")
    ),
    "Classification of images": lambda _: Case(
        R.Classification(), weft.vit(**PATCHES, classes=3), images()
    ),
}


def test_every_task_of_ours_is_here() -> None:
    ours = {task.__name__ for task in members(R.Task) if task.__module__.startswith("weft.recipe.")}
    assert ours == set(CASES) - {"Classification of images", "Detection with anchors"}


@pytest.mark.parametrize("name", CASES)
def test_a_task_of_ours_keeps_the_contract(name: str, tmp_path: Path) -> None:
    case = CASES[name](tmp_path)
    check_task(case.task, case.spec, case.store, **case.more)


# The check fails where a task breaks the contract


class ShortTask(ClassificationTask):
    def predict(self, outputs: Any, batch: Batch) -> list[Any]:
        return super().predict(outputs, batch)[:-1]


class BatchTask(ClassificationTask):
    def predict(self, outputs: Any, batch: Batch) -> list[Any]:
        return super().predict(outputs - outputs.mean(0), batch)


class SilentTask(ClassificationTask):
    def evaluate(self, predictions: Any, references: Any) -> Any:
        yield from list(super().evaluate(predictions, references))[:1]


class NotFiniteTask(ClassificationTask):
    def evaluate(self, predictions: Any, references: Any) -> Any:
        yield from super().evaluate(predictions, references)
        yield "more", float("nan")


@choice
class Broken(R.Classification):
    """A task whose implementation is wrong."""


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (ShortTask, "7 predictions for 8 samples"),
        (BatchTask, "depends on its batch"),
        (SilentTask, "evaluate does not yield f1, matthews"),
        (NotFiniteTask, "more = nan is not finite"),
    ],
)
def test_contract_violations_are_reported(wrong: type, message: str, tmp_path: Path) -> None:
    case = CASES["Classification"](tmp_path)
    implements(Broken)(wrong)
    with pytest.raises(AssertionError, match=message):
        check_task(Broken(), case.spec, case.store)
