"""Small prepared data, written as the contract of a folder says, and a corruption that only
copies.
"""

import base64
import hashlib
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from PIL import Image

from weft import recipe as R
from weft.data.batches.samples import Samples
from weft.data.shards.store import Store, open_store
from weft.support.storage import seal_json
from weft.support.values import to_plain

Columns = dict[str, list[Any]]
TOKENS = pa.large_list(pa.uint16())
KINDS = {
    "tokens": TOKENS,
    "source": TOKENS,
    "target": TOKENS,
    "context": TOKENS,
    "endings": pa.large_list(TOKENS),
    "sentences": pa.large_list(pa.uint32()),
    "image": pa.large_binary(),
    "boxes": pa.large_list(pa.float32()),
    "labels": pa.large_list(pa.int32()),
    "id": pa.large_string(),
    "label": pa.int64(),
    "number": pa.float32(),
}


def write_split(folder: Path, shards: list[Columns]) -> None:
    """One Arrow file a shard, and the index."""
    folder.mkdir(parents=True, exist_ok=True)
    entries = []
    for s, columns in enumerate(shards):
        batch = pa.record_batch(
            {name: pa.array(column, KINDS[name]) for name, column in columns.items()}
        )
        path = folder / f"{s:05}.arrow"
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, batch.schema) as writer:
            writer.write_batch(batch)
        first = next(
            (column for name, column in columns.items() if name in ("tokens", "source", "context")),
            [],
        )
        entries.append(
            {
                "file": path.name,
                "rows": batch.num_rows,
                "tokens": sum(map(len, first)),
                "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            }
        )
    fingerprint = hashlib.sha256(json.dumps(entries).encode()).hexdigest()
    index = {"fingerprint": fingerprint, "rows": sum(e["rows"] for e in entries), "shards": entries}
    (folder / "index.json").write_bytes(seal_json(index))


def write_data(
    folder: Path, row: R.RowSchema, vocabulary: int | None = 50_000, **more: Any
) -> None:
    plain = {
        "rows": to_plain(row),
        "vocab_size": vocabulary,
        "special_tokens": {"pad": 0, "unk": 1, "bos": 2, "eos": 3, "mask": 4},
        "sentinels": [],
        "labels": None,
        "tokenizer": None,
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "data.json").write_bytes(seal_json(plain | more))


def bits(flags: list[bool]) -> str:
    return base64.b64encode(np.packbits(flags, bitorder="little").tobytes()).decode()


def documents(
    folder: Path, shards: list[list[list[int]]], sentences: list[list[list[int]]] | None = None
) -> Store:
    """A store of documents of tokens, by shard."""
    write_data(folder, R.Documents(sentence_boundaries=sentences is not None))
    columns: list[Columns] = [{"tokens": shard} for shard in shards]
    if sentences is not None:
        columns = [
            column | {"sentences": starts}
            for column, starts in zip(columns, sentences, strict=True)
        ]
    write_split(folder / "train", columns)
    return open_store(folder)


def counted(folder: Path, sizes: list[list[int]]) -> Store:
    """Documents of these sizes, by shard; the tokens count 0, 1, 2, … over all of them."""
    at = 0
    shards = []
    for shard in sizes:
        ends = np.cumsum([at, *shard])
        shards.append([list(range(a, b)) for a, b in pairwise(ends)])
        at = int(ends[-1])
    return documents(folder, shards)


class Lists:
    """Samples in memory: sample i is `lengths[i]` tokens, all of them i."""

    def __init__(self, lengths: list[int]) -> None:
        self.sizes = np.array(lengths)

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, i: int) -> dict[str, Any]:
        return {"tokens": np.full(self.sizes[i], i)}

    def lengths(self, indices: np.ndarray) -> np.ndarray:
        found: np.ndarray = self.sizes[indices]
        return found


class Copy:
    """Rows are the samples, cut at `length`, with one draw a token as noise."""

    fields = {"tokens": ("tokens", 0), "labels": ("tokens", -100), "noise": ("tokens", 0)}
    terms = ("token",)
    same_every_epoch = False

    def __init__(self, length: int = 1 << 30) -> None:
        self.length = length

    def __call__(
        self, samples: Samples, index: int, draw: np.random.Generator
    ) -> dict[str, np.ndarray]:
        tokens = np.asarray(samples[index]["tokens"][: self.length], np.int64)
        labels = tokens.copy()
        labels[::2] = -100
        return {
            "tokens": tokens,
            "labels": labels,
            "noise": draw.random(len(tokens)),
            "index": np.asarray(index),
        }

    def loss_counts(self, batch: Any) -> dict[str, int]:
        return {"token": len(batch["labels_at"])}


def centre_crop(image: Image.Image, size: int, share: float = 0.875) -> Image.Image:
    """The middle square, `share` of the shorter side: a twin of what validation sees."""
    short = round(size / share)
    width, height = (int(short * side / min(image.size)) for side in image.size)
    left = (width - size) // 2
    top = (height - size) // 2
    return image.resize((width, height), Image.Resampling.BICUBIC).crop(
        (left, top, left + size, top + size)
    )
