"""Small tasks to tune on: whether a word is in a sentence, and what follows from it."""

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import weft
from weft import recipe as R
from weft import spec as S
from weft.data.preparing.prepare import prepare
from weft.data.reading.examples import Examples, expected_rows, find_examples
from weft.data.reading.quarantine import MAX_BAD_ROWS
from weft.data.reading.table import Tables, open_table
from weft.interop.saving import save
from weft.nn.model import build

WORDS = (
    "the",
    "loom",
    "holds",
    "warp",
    "and",
    "weft",
    "while",
    "a",
    "shuttle",
    "carries",
    "one",
    "thread",
    "through",
    "all",
    "again",
)
SHAPE: dict[str, Any] = {
    "depth": 3,
    "width": 16,
    "heads": 2,
    "hidden": 32,
    "vocab_size": 261,
    "positions": 64,
    "dropout": 0.1,
}
POOLED = S.ClassifierHead(num_labels=2, transform=S.HeadTransform(activation="tanh"), dropout=0.1)


def sentences(count: int, seed: int) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(2, 6))) for _ in range(count)]


def write_examples(path: Path, count: int, seed: int = 0) -> Path:
    path.write_text(
        "".join(
            json.dumps({"text": s, "label": int("loom" in s)}) + "\n"
            for s in sentences(count, seed)
        )
    )
    return path


def data(folder: Path, row: R.RowSchema | None = None) -> R.Data:
    folder.mkdir(parents=True, exist_ok=True)
    train = write_examples(folder / "train.jsonl", 60)
    valid = write_examples(folder / "valid.jsonl", 25, 1)
    made = R.Data(
        rows=row or R.LabelledTexts(),
        train=R.Source(paths=(str(train),)),
        valid=R.Source(paths=(str(valid),)),
        tokenizer=R.ByteTokenizer(),
        prepared_folder=str(folder / ("prepared" if row is None else type(row).__name__)),
    )
    prepare(made)
    return made


def bert(head: Any = POOLED) -> S.Spec:
    return weft.bert(**SHAPE, head=head)


def recipe(folder: Path, **more: Any) -> R.Recipe:
    given: dict[str, Any] = {
        "name": "tuned",
        "model": bert(),
        "task": R.Classification(),
        "data": data(folder),
        "batch": R.FixedBatch(size=8, length=48, sort_pool=24),
        "steps": 20,
        "optimiser": R.AdamW(lr=3e-3),
        "schedule": R.LinearSchedule(warmup_steps=3),
        "checkpoints": R.Checkpoints(every_steps=5, keep=1),
        **more,
    }
    return R.Recipe(**given)


def checkpoint(folder: Path, seed: int = 7) -> Path:
    """A model that was trained before: an encoder with a pooler."""
    return save(
        build(bert(S.NoHead(transform=S.HeadTransform(activation="tanh"))), seed=seed),
        folder,
        to="weft",
    )


def examples_of(
    paths: Sequence[str],
    valid: Sequence[str] = (),
    task: str | None = None,
    names: Sequence[str] = (),
    columns: Sequence[str] = (),
    label: str | None = None,
    max_bad_rows: float = MAX_BAD_ROWS,
) -> Examples:
    """What a task learns from in files, as `weft tune` and `weft new` read them."""
    table = open_table(
        paths, columns, names, label, expected=expected_rows(task), max_bad_rows=max_bad_rows
    )
    return find_examples(Tables(table, table.open_like(valid) if valid else None), task)
