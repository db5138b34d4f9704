"""Predictions: every sample once, in order, for any batch, rank and source of rows."""

import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from weft import recipe as R
from weft import spec as S
from weft.data.preparing.prepare import prepare
from weft.data.shards.in_memory import InMemoryStore
from weft.data.shards.store import open_store
from weft.metrics.classification import accuracy
from weft.tasks.predict import PredictOptions
from weft.tasks.task import predict
from weft.training.parallel.ranks import DistributedRanks

from ..inference.small import TEXTS, ready, tokenizer

LABELS = ("bad", "fair", "good")
ROWS = [{"text": text, "label": LABELS[i % 3]} for i, text in enumerate(TEXTS)]


def held(rows: list[dict[str, Any]]) -> InMemoryStore:
    return InMemoryStore(rows, R.LabelledTexts(), tokenizer(), LABELS)


def plain(row: dict[str, Any]) -> dict[str, Any]:
    return {
        name: [np.asarray(v).tolist() for v in value]
        if isinstance(value, list)
        else np.asarray(value).tolist()
        for name, value in row.items()
    }


def test_rows_in_memory_are_those_of_prepared_data(tmp_path: Path) -> None:
    tokenizer().save(tmp_path / "tokenizer.json")
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (tmp_path / "tagged.jsonl").write_text(
        "".join(
            json.dumps({"words": t.split(), "tags": ["O"] * len(t.split())}) + "\n" for t in TEXTS
        )
    )
    (tmp_path / "text.txt").write_text("\n\n".join(TEXTS))
    chosen = [{"context": text, "a": "yes", "b": "why not", "label": 1} for text in TEXTS]
    (tmp_path / "chosen.jsonl").write_text("".join(json.dumps(row) + "\n" for row in chosen))
    rows: list[tuple[R.RowSchema, str, list[dict[str, Any]], Any]] = [
        (R.LabelledTexts(), "rows.jsonl", ROWS, LABELS),
        (R.Documents(sentence_boundaries=True), "text.txt", [{"text": t} for t in TEXTS], None),
        (
            R.TaggedWords(),
            "tagged.jsonl",
            [{"words": t.split(), "tags": ["O"] * len(t.split())} for t in TEXTS],
            ("O",),
        ),
        (R.ChoiceQuestions(endings=("a", "b")), "chosen.jsonl", chosen, None),
    ]
    cut = R.TokenizerFile(path=str(tmp_path / "tokenizer.json"))
    for row, file, fields, labels in rows:
        data = R.Data(rows=row, train=R.Source(paths=(str(tmp_path / file),)), tokenizer=cut)
        store = open_store(prepare(data, tmp_path / file.split(".")[0], workers=1).folder)
        own = InMemoryStore(fields, row, tokenizer(), labels)
        assert (len(own), own.tokens) == (len(store), store.tokens)
        assert (own.meta.special_tokens, own.meta.labels, own.meta.vocab_size) == (
            store.meta.special_tokens,
            store.meta.labels,
            store.meta.vocab_size,
        )
        assert (own.meta.is_continuation == store.meta.is_continuation).all()
        for i in range(len(store)):
            assert plain(own.row(i)) == plain(store.row(i))
        if isinstance(row, R.Documents):
            assert own.stream(3, 40).tolist() == store.stream(3, 40).tolist()
            assert own.sentences(0, 40).tolist() == store.sentences(0, 40).tolist()


def test_answers_come_in_the_order_of_the_rows_and_are_those_of_each_row_alone() -> None:
    model = ready(S.ClassifierHead(num_labels=3, labels=LABELS))
    found = predict(model, R.Classification(), held(ROWS), options=PredictOptions(batch_size=3))
    for row, own in zip(ROWS, found, strict=True):
        ids = [2, *tokenizer().encode(row["text"]).tolist(), 3]
        with torch.no_grad():
            logits = model.model(torch.tensor([ids]))
        assert own == pytest.approx(logits[0].double().softmax(-1).tolist(), abs=1e-6)
    assert len({tuple(own) for own in found}) == len(ROWS)


def test_half_the_precision_is_near() -> None:
    model = ready(S.ClassifierHead(num_labels=3, labels=LABELS))
    full, half = (
        np.array(predict(model, R.Classification(), held(ROWS), options=PredictOptions(bf16=b)))
        for b in (False, True)
    )
    assert 0 < np.abs(full - half).max() < 0.1


# Running text


def test_overlapping_windows_ask_each_token_once_as_a_plain_pass_would() -> None:
    model = ready(None, "gpt2")
    data = InMemoryStore([{"text": text} for text in TEXTS], R.Documents(), tokenizer(), None)
    tokens = data.stream(0, data.tokens).astype(np.int64)
    length = 16
    stride = 5
    found = [
        surprise
        for row in predict(
            model,
            R.CausalLM(),
            data,
            length=length,
            stride=stride,
            options=PredictOptions(batch_size=4),
        )
        for surprise, _ in row
    ]
    wanted = []
    for place in range(1, len(tokens)):
        # the first window that holds it
        start = 0 if place <= length else stride * -(-(place - length) // stride)
        with torch.no_grad():
            logits = model.model(torch.from_numpy(tokens[None, start:place]))
        wanted.append(-float(logits[0, -1].log_softmax(-1)[tokens[place]]))
    assert found == pytest.approx(wanted, abs=1e-5)


def test_more_context_is_not_the_same_as_less() -> None:
    model = ready(None, "gpt2")
    data = InMemoryStore([{"text": text} for text in TEXTS], R.Documents(), tokenizer(), None)
    sums = [
        sum(
            s
            for row in predict(model, R.CausalLM(), data, length=16, stride=stride)
            for s, _ in row
        )
        for stride in (16, 4)
    ]
    counts = [
        sum(len(row) for row in predict(model, R.CausalLM(), data, length=16, stride=stride))
        for stride in (16, 4)
    ]
    assert counts == [data.tokens - 1] * 2
    assert sums[0] != pytest.approx(sums[1], abs=1e-3)


# Ranks


def worker(rank: int, port: int, folder: str) -> None:
    torch.set_num_threads(1)
    os.environ.update(
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE="2"
    )
    dist.init_process_group("gloo")
    model = ready(S.ClassifierHead(num_labels=3, labels=LABELS))
    found = []
    for count, rows in SIZES:
        own = predict(
            model,
            R.Classification(),
            held(ROWS[:count]),
            options=PredictOptions(batch_size=rows, ranks=DistributedRanks(rank, 2)),
        )
        found.append(own)
    dist.destroy_process_group()
    Path(folder, f"{rank}.json").write_text(json.dumps(found))


# samples, rows at a time: nothing divides, and a rank may have nothing
SIZES = [
    (1, 2),
    (5, 2),
    (7, 3),
    (8, 1),
]


@pytest.mark.skipif(sys.platform != "linux", reason="gloo over loopback")
def test_two_ranks_give_one_answer_a_sample_the_same_as_one_process(tmp_path: Path) -> None:
    """Bug 20: a sample counted twice on two ranks."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(worker, (port, str(tmp_path)), nprocs=2)
    model = ready(S.ClassifierHead(num_labels=3, labels=LABELS))
    found = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1)]
    assert found[0] == found[1]  # every rank knows all
    for (count, _), own in zip(SIZES, found[0], strict=True):
        alone = predict(model, R.Classification(), held(ROWS[:count]))
        assert len(own) == count
        assert np.abs(np.array(own) - np.array(alone)).max() < 1e-6
        right = [row["label"] for row in ROWS[:count]]
        scores = [
            dict(accuracy([LABELS[int(np.argmax(p))] for p in those], right))
            for those in (own, alone)
        ]
        assert scores[0] == scores[1]


def test_a_sample_that_is_answered_twice_is_not_counted_in_silence() -> None:
    class Copied(DistributedRanks):
        """Its partner answers the same samples: as many answers as samples, and all wrong."""

        def sum(self, numbers: list[float]) -> list[float]:
            return [numbers[0]] * 2 if len(numbers) == 2 else numbers[: len(numbers) // 2] * 2

    with pytest.raises(AssertionError, match="a sample has no prediction, or two"):
        predict(
            ready(S.ClassifierHead(num_labels=3, labels=LABELS)),
            R.Classification(),
            held(ROWS),
            options=PredictOptions(ranks=Copied(0, 2)),
        )
