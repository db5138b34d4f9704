"""Measure the time to resume a run at sample 10 and at sample 10 billion: `python -m
benchmarks.resume`.

With --quick, the data has ten shards of a thousand rows, and each number comes from one process at
two positions. Otherwise the data is 10,000 shards of a million rows, one real file under 10,000
names. Each number is the best of three fresh processes, from nothing to the first batch: `seconds`
without the imports, `with_imports` with them (most of which is torch), `processor` without them and
without what other processes took, which must be under a second. `megabytes` is the process's own
memory after it, which must be as much far away as near, `after_imports` what of it came after the
imports, `peak` the peak with all pages of mapped files, which the system takes back when it needs
them. The last line is JSON.
"""

import time

BEGIN = time.perf_counter()

import argparse  # noqa: E402
import hashlib  # noqa: E402
import json  # noqa: E402
import re  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
from pathlib import Path  # noqa: E402
from tempfile import TemporaryDirectory  # noqa: E402
from typing import Any, NamedTuple  # noqa: E402

LENGTH = 16
KINDS = ("rows", "budget", "packed")
# at most: of one start; between two positions
SECONDS = 1.0
MEGABYTES = 2.0


class Size(NamedTuple):
    """How much data there is, and how many processes are measured."""

    shards: int = 10_000
    rows: int = 1_000_000  # per shard
    repeats: int = 3

    def positions(self) -> dict[str, int]:
        samples = self.shards * self.rows
        return {
            "near": 10,
            "end of the epoch": samples - samples // 100_000,
            "far": samples,
            "later epoch": 7 * samples + 123_456_789 % samples,
        }


QUICK = Size(shards=10, rows=1_000, repeats=1)


class Copy:
    """The least preprocessing that there is."""

    fields = {"tokens": ("tokens", 0)}
    terms = ("token",)
    same_every_epoch = False

    def __call__(self, samples: Any, index: int, rng: Any) -> dict[str, Any]:
        return {"tokens": samples[index]["tokens"][:64]}

    def loss_counts(self, batch: dict[str, Any]) -> dict[str, int]:
        return {"token": batch["tokens"].size}


def memory(what: str) -> float:
    """Megabytes of this process alone, as Linux counts them."""
    found = re.search(rf"{what}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def first_batch(folder: str, kind: str, position: int) -> dict[str, float]:
    """In a fresh process: from nothing to the first batch."""
    from weft import recipe as R
    from weft.data.batches.batching import build_planner
    from weft.data.batches.loader import Loader
    from weft.data.batches.samples import RowSamples, Samples, TokenWindows
    from weft.data.shards.store import open_store

    imported = time.perf_counter()
    worked = time.process_time()
    before = memory("RssAnon")
    store = open_store(folder)
    samples: Samples = (
        TokenWindows(store, LENGTH, LENGTH) if kind == "rows" else RowSamples(store, ("tokens",))
    )
    batch = {
        "rows": R.FixedBatch(size=64, length=LENGTH),
        "budget": R.TokenBudget(tokens=4096, length=64),
        "packed": R.PackedBatch(size=16, length=256),
    }
    copy: Any = Copy()
    work = next(
        Loader(build_planner(batch[kind], samples, seed=0), samples, copy, seed=0).from_position(
            position
        )
    )
    end = time.perf_counter()
    done = time.process_time()
    assert work.tokens > 0
    assert work.step.rows[0][0].epoch == position // len(samples)
    return {
        "processor": done - worked,
        "seconds": end - imported,
        "with_imports": end - BEGIN,
        "megabytes": memory("RssAnon"),
        "after_imports": memory("RssAnon") - before,
        "peak": memory("VmHWM"),
        "samples": len(samples),
    }


def prepare(folder: Path, size: Size) -> None:
    """One shard, a name for it per shard, and the index that a real preparation would have
    written.
    """
    import numpy as np
    import pyarrow as pa

    from weft import recipe as R
    from weft.support.storage import seal_json
    from weft.support.values import to_plain

    half = np.random.default_rng(0).integers(1, 2 * LENGTH, size.rows // 2)
    lengths = np.concatenate((half, 2 * LENGTH - half))  # as many windows as rows
    starts = np.concatenate(([0], lengths.cumsum()))
    tokens = pa.LargeListArray.from_arrays(
        pa.array(starts, pa.int64()), pa.array(np.arange(starts[-1]) % 50_000, pa.uint16())
    )
    batch = pa.record_batch({"tokens": tokens})
    (folder / "train").mkdir()
    first = folder / "train" / "00000.arrow"
    with pa.OSFile(str(first), "wb") as file, pa.ipc.new_file(file, batch.schema) as writer:
        writer.write_batch(batch)
    with first.open("rb") as written:
        sha256 = hashlib.file_digest(written, "sha256").hexdigest()
    entries = [
        {"file": f"{s:05}.arrow", "rows": size.rows, "tokens": int(starts[-1]), "sha256": sha256}
        for s in range(size.shards)
    ]
    for entry in entries[1:]:
        (folder / "train" / str(entry["file"])).hardlink_to(first)
    index = {"fingerprint": "0" * 64, "rows": size.shards * size.rows, "shards": entries}
    (folder / "train" / "index.json").write_bytes(seal_json(index))
    info = {"rows": to_plain(R.Documents()), "vocab_size": 50_000}
    (folder / "data.json").write_bytes(seal_json(info))


def measure(folder: str, kind: str, position: int, repeats: int) -> dict[str, float]:
    """The best of some fresh processes."""
    runs = []
    for _ in range(repeats):
        words = [sys.executable, "-m", "benchmarks.resume", "--first", folder, kind, str(position)]
        runs.append(
            json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
        )
    return {name: round(min(run[name] for run in runs), 3) for name in runs[0]}


def show(found: dict[str, dict[str, dict[str, float]]], positions: dict[str, int]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(
        "batch",
        "position",
        "processor",
        "seconds",
        "with imports",
        "megabytes",
        "after imports",
        "peak",
    )
    for kind, by_position in found.items():
        for name, row in by_position.items():
            table.add_row(
                kind,
                f"{positions[name]:,}",
                *(f"{row[key]:.3f}" for key in ("processor", "seconds", "with_imports")),
                *(f"{row[key]:.1f}" for key in ("megabytes", "after_imports", "peak")),
            )
    Console(width=120).print(table)


def good(found: dict[str, dict[str, dict[str, float]]]) -> bool:
    return all(
        row["processor"] < SECONDS and abs(row["megabytes"] - rows["near"]["megabytes"]) < MEGABYTES
        for rows in found.values()
        for row in rows.values()
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--receipt", metavar="FILE", help="also write the result with its receipt")
    parser.add_argument(
        "--first",
        nargs=3,
        metavar=("FOLDER", "KIND", "POSITION"),
        help="one measurement in this process",
    )
    parser.add_argument(
        "--quick", action="store_true", help="little data, two positions, one process each"
    )
    given = parser.parse_args()
    start = time.perf_counter()
    if given.first:
        print(json.dumps(first_batch(given.first[0], given.first[1], int(given.first[2]))))
        return 0
    size = QUICK if given.quick else Size()
    positions = size.positions()
    if given.quick:
        positions = {name: positions[name] for name in ("near", "later epoch")}
    with TemporaryDirectory() as folder:
        prepare(Path(folder), size)
        found = {
            kind: {
                name: measure(folder, kind, position, size.repeats)
                for name, position in positions.items()
            }
            for kind in KINDS
        }
    show(found, positions)
    if given.receipt:
        from . import receipt

        receipt.write(given.receipt, found, time.perf_counter() - start)
    print(json.dumps(found))
    return 0 if good(found) else 1


if __name__ == "__main__":
    sys.exit(main())
