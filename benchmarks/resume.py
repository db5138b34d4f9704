"""How long a run takes to go on, at sample 10 and at sample 10 billion: `python -m benchmarks.resume`.

The data is 10,000 shards of a million rows, one real file under 10,000 names. Each number is the best of three fresh processes, from
nothing to the first batch: `seconds` without the imports, `with_imports` with them (most of which is torch), `processor` without them
and without what other processes took, which must be under a second. `megabytes` is the process's own memory after it, which must be
as much far away as near, `after_imports` what of it came after the imports, `peak` the peak with all pages of mapped files, which
the system takes back when it needs them. The last line is JSON.
"""

import time

BEGIN = time.perf_counter()

import argparse  # noqa: E402
import json  # noqa: E402
import re  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
from pathlib import Path  # noqa: E402
from tempfile import TemporaryDirectory  # noqa: E402
from typing import Any  # noqa: E402

SHARDS, ROWS, LENGTH = 10_000, 1_000_000, 16
NEAR, FAR = 10, 10_000_000_000
POSITIONS = {
    "near": NEAR,
    "end of the epoch": FAR - 100_000,
    "far": FAR,
    "later epoch": 7 * FAR + 123_456_789,
}
KINDS = ("rows", "budget", "packed")
REPEATS, SECONDS, MEGABYTES = (
    3,
    1.0,
    2.0,
)  # the most seconds, and the most that two positions may differ in memory


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
    from weft.data.batching import build_planner
    from weft.data.loader import Loader
    from weft.data.samples import RowSamples, Samples, TokenWindows
    from weft.data.store import open_store

    imported, worked, before = time.perf_counter(), time.process_time(), memory("RssAnon")
    store = open_store(folder)
    samples: Samples = (
        TokenWindows(store, LENGTH, LENGTH) if kind == "rows" else RowSamples(store, ("tokens",))
    )
    batch = {
        "rows": R.FixedBatch(size=64, length=LENGTH),
        "budget": R.TokenBudget(tokens=4096, length=64),
        "packed": R.PackedBatch(size=16, length=256),
    }
    work = next(
        Loader(build_planner(batch[kind], samples, seed=0), samples, Copy(), seed=0).from_position(
            position
        )
    )
    end, done = time.perf_counter(), time.process_time()
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


def prepare(folder: Path) -> None:
    """One shard, 10,000 names for it, and the index that a real preparation would have written."""
    import numpy as np
    import pyarrow as pa

    from weft import recipe as R
    from weft.values import to_plain

    half = np.random.default_rng(0).integers(1, 2 * LENGTH, ROWS // 2)
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
    entries = [
        {"file": f"{s:05}.arrow", "rows": ROWS, "tokens": int(starts[-1]), "sha256": "0" * 64}
        for s in range(SHARDS)
    ]
    for entry in entries[1:]:
        (folder / "train" / str(entry["file"])).hardlink_to(first)
    (folder / "train" / "index.json").write_text(
        json.dumps({"fingerprint": "0" * 64, "rows": SHARDS * ROWS, "shards": entries})
    )
    (folder / "data.json").write_text(
        json.dumps({"rows": to_plain(R.Documents()), "vocab_size": 50_000})
    )


def measure(folder: str, kind: str, position: int) -> dict[str, float]:
    """The best of some fresh processes."""
    runs = []
    for _ in range(REPEATS):
        words = [sys.executable, "-m", "benchmarks.resume", "--first", folder, kind, str(position)]
        runs.append(
            json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
        )
    return {name: round(min(run[name] for run in runs), 3) for name in runs[0]}


def show(found: dict[str, dict[str, dict[str, float]]]) -> None:
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
                f"{POSITIONS[name]:,}",
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
    given, start = parser.parse_args(), time.perf_counter()
    if given.first:
        print(json.dumps(first_batch(given.first[0], given.first[1], int(given.first[2]))))
        return 0
    with TemporaryDirectory() as folder:
        prepare(Path(folder))
        found = {
            kind: {name: measure(folder, kind, position) for name, position in POSITIONS.items()}
            for kind in KINDS
        }
    show(found)
    if given.receipt:
        from . import receipt

        receipt.write(given.receipt, found, time.perf_counter() - start)
    print(json.dumps(found))
    return 0 if good(found) else 1


if __name__ == "__main__":
    sys.exit(main())
