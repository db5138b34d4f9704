"""Measure the cost of filters and deduplication: `python -m benchmarks.deduplicate [--megabytes 40]
[--ray]`.

The text is words drawn after Zipf, in documents of many lengths; a tenth of them repeat an earlier
one, and a tenth repeat one with some words changed. Each stage is timed on one core in processor
seconds; then the whole of `weft prepare` with and without filters. With `--ray`, two workers of a
Ray cluster prepare the same, and the hashes are compared. The last line is JSON: megabytes per
second and core, the share of planted duplicates that was found, bytes and memory per billion
documents, and core-hours and cost per terabyte at an assumed price.
"""

import argparse
import hashlib
import json
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from weft import recipe as R
from weft.data.preparing import match, scan
from weft.data.preparing.deduplicate import ngram_hashes
from weft.data.preparing.filtering import read_report
from weft.data.preparing.prepare import prepare
from weft.data.reading.formats.base import MAX_PIECES
from weft.data.tokenizing.train_tokenizer import fit_tokenizer
from weft.support.registry import implementation
from weft.support.storage import seal_json
from weft.support.values import to_plain

from . import command, receipt
from .prepare import zipfian

QUALITY = (
    R.LengthFilter(),
    R.CharacterFilter(),
    R.LineFilter(),
    R.RepetitionFilter(),
    R.ForbiddenTextFilter(),
)
CHANGED = (0.0, 0.005, 0.01, 0.02, 0.05)  # share of the words of a near copy
BILLION = 10**9


def corpus(
    megabytes: float, seed: int = 0
) -> tuple[list[str], dict[str, list[int]], dict[int, float]]:
    """Documents; the indices of the planted copies, exact ones, and near ones by the share of
    changed words; their Jaccard similarities.
    """
    similarity: dict[int, float] = {}
    draw = np.random.default_rng(seed)
    words = zipfian(int(megabytes * 1e6), seed).split()
    ends = np.cumsum(np.clip(draw.lognormal(5.6, 0.8, len(words) // 60), 60, 3000).astype(int))
    starts = [0, *ends[ends < len(words)].tolist()]
    documents = [words[a:b] for a, b in pairwise(starts)]
    planted: dict[str, list[int]] = {"exact": [], **{f"near {c:g}": [] for c in CHANGED[1:]}}
    for i in range(10, len(documents)):
        if i % 5 in (0, 1):
            earlier = documents[int(draw.integers(0, i // 5)) * 5 + 2]  # never a copy itself
            changed = CHANGED[0] if i % 5 == 0 else CHANGED[1 + i // 5 % (len(CHANGED) - 1)]
            copy = list(earlier)
            for place in np.flatnonzero(draw.random(len(copy)) < changed):
                copy[place] = words[int(draw.integers(0, len(words)))]
            documents[i] = copy
            planted["exact" if not changed else f"near {changed:g}"].append(i)
            pair = [
                set(ngram_hashes(" ".join(d), R.NearDeduplication()).tolist())
                for d in (earlier, copy)
            ]
            similarity[i] = len(pair[0] & pair[1]) / len(pair[0] | pair[1])
    return [" ".join(document) for document in documents], planted, similarity


def rate(documents: list[str], *filters: Any) -> float:
    """Megabytes per processor second of what looks at a row; keys are hashed and sorted too."""
    rules = [implementation(value)(value) for value in filters]
    result = scan.ScanResult()
    size = sum(len(text) for text in documents)
    began = time.process_time()
    for row, text in enumerate(documents):
        for rule in rules:
            keys = rule(text)
            if isinstance(keys, list):
                result.add_keys(row, 0, keys)
    result.sorted_keys()
    return size / 1e6 / (time.process_time() - began)


def compare_rate(count: int = 2_000_000) -> float:
    """Keys per processor second of comparing."""
    keys = np.zeros(count, scan.KEY)
    draw = np.random.default_rng(0)
    keys["high"], keys["low"] = draw.integers(0, 1 << 62, (2, count), np.uint64)
    keys["row"] = np.arange(count)
    began = time.process_time()
    match.find_duplicates(np.split(keys, 500))
    return count / (time.process_time() - began)


def dropped_rows(folder: Path) -> set[int]:
    """The numbers of the dropped documents, over all pieces."""
    from weft.data.preparing.drop_table import read_drop_table

    split = folder / "train"
    rows = set[int]()
    first = 0
    for number in range(len(list((split / "filter").glob("[0-9]*.json")))):
        table = read_drop_table(split, number)
        rows |= {first + int(i) for i in np.flatnonzero(table.dropped)}
        first += len(table.dropped)
    return rows


def folder_hash(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(f"{path.relative_to(folder)} ".encode() + path.read_bytes())
    return digest.hexdigest()


def data_of(path: Path, *filters: R.Filter) -> R.Data:
    given = R.Source(paths=(str(path),), format="text", document_boundary="line", filters=filters)
    tokenizer = R.TokenizerFile(path=str(path.with_name("tokenizer.json")))
    return R.Data(rows=R.Documents(), train=given, tokenizer=tokenizer)


def prepared(data: R.Data, folder: Path, **more: Any) -> tuple[float, str]:
    began = time.perf_counter()
    prepare(data, folder, **more)
    return time.perf_counter() - began, folder_hash(folder)


def open_seconds(folder: Path) -> float:
    """Processor seconds to open a store of ten billion rows in as many shards as a source may
    have.
    """
    from weft.data.shards.store import open_store

    (folder / "train").mkdir(parents=True)
    rows = -(-(10**10) // MAX_PIECES)
    entry = {"file": "00000.arrow", "rows": rows, "tokens": rows, "sha256": "0" * 64}
    index = {"fingerprint": "0", "rows": rows * MAX_PIECES, "shards": [entry] * MAX_PIECES}
    (folder / "train" / "index.json").write_bytes(seal_json(index))
    (folder / "data.json").write_bytes(seal_json({"rows": to_plain(R.Documents())}))
    began = time.process_time()
    assert len(open_store(folder)) >= 10**10
    return time.process_time() - began


def costs(
    rates: dict[str, float], keys_rate: float, bands: int, document: float, price: float
) -> Any:
    """Core-hours and money per terabyte, bytes and ranges per billion documents."""
    documents = 1e12 / document
    hours = {name: 1e12 / 1e6 / speed / 3600 for name, speed in rates.items()}
    hours["comparing exact keys"] = documents / keys_rate / 3600
    hours["comparing near keys"] = documents * bands / keys_rate / 3600
    return {
        "core-hours per TB": {name: round(h, 1) for name, h in hours.items()},
        "price of a core-hour": price,
        "price per TB": {name: round(h * price, 2) for name, h in hours.items()},
        "per billion documents": {
            name: {
                "keys GB": round(BILLION * keys * scan.KEY.itemsize / 1e9, 1),
                "ranges": len(match.ranges(BILLION * keys)),
                "memory per range GB": round(
                    BILLION * keys * match.MEMORY_PER_KEY / len(match.ranges(BILLION * keys)) / 1e9,
                    2,
                ),
            }
            for name, keys in (("exact", 1), ("near", bands))
        },
    }


def measure(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    documents, planted, similarity = corpus(args.megabytes)
    path = folder / "text.txt"
    path.write_text("".join(f"{text}\n" for text in documents))
    size = path.stat().st_size
    fit_tokenizer(R.ByteBPE(vocab_size=8000), lambda: documents[:1000]).save(
        folder / "tokenizer.json"
    )
    exact = R.ExactDeduplication()
    near = R.NearDeduplication()
    rates = {
        "quality": rate(documents, *QUALITY),
        "exact": rate(documents, exact),
        "near": rate(documents, near),
    }
    keys_rate = compare_rate()
    bands = implementation(near)(near).bands
    plain, _ = prepared(data_of(path), folder / "plain", workers=args.workers)
    data = data_of(path, *QUALITY, exact, near)
    seconds, one = prepared(data, folder / "one", workers=args.workers)
    dropped = dropped_rows(folder / "one")
    report = read_report(folder / "one" / "train")
    copies = {i for numbers in planted.values() for i in numbers}
    result = {
        "megabytes": round(size / 1e6, 1),
        "documents": len(documents),
        "MB/s per core": {name: round(speed, 2) for name, speed in rates.items()},
        "keys/s per core": round(keys_rate),
        "prepare MB/s": round(size / 1e6 / plain, 2),
        "prepare with filters MB/s": round(size / 1e6 / seconds, 2),
        "dropped": report and report["dropped"],
        "planted copies dropped": {
            name: {
                "mean Jaccard similarity": round(
                    float(np.mean([similarity[i] for i in numbers])), 3
                ),
                "dropped": round(len(dropped.intersection(numbers)) / len(numbers), 3),
            }
            for name, numbers in planted.items()
        },
        "others dropped": len(dropped - copies),
        **costs(rates, keys_rate, bands, size / len(documents), args.price),
        "opening 10 billion rows, seconds": round(open_seconds(folder / "open"), 2),
    }
    if args.ray:
        import ray

        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
        seconds, two = prepared(data, folder / "ray", on="ray")
        ray.shutdown()
        result["ray, two workers"] = {
            "MB/s": round(size / 1e6 / seconds, 2),
            "same hash": one == two,
            "sha256": two,
        }
        assert one == two
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=float, default=40)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--price", type=float, default=0.05, help="of a core-hour, in your money")
    parser.add_argument("--ray", action="store_true", help="also on a Ray cluster of two workers")
    parser.add_argument("--receipt")
    args = parser.parse_args()
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        result = measure(args, Path(folder))
    for name, value in result.items():
        print(f"{name:>34}  {value}", file=sys.stderr)
    if args.receipt:
        receipt.write(args.receipt, result, time.perf_counter() - began)
    print(json.dumps(result))


if __name__ == "__main__":
    command.run(main)
