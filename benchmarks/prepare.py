"""How fast `weft prepare` is beside the tokenizer alone:
`python -m benchmarks.prepare [--megabytes 1000] [--text FILE]`.

The text is a file repeated, or words drawn after Zipf. The bare library encodes the same documents
on all cores and throws the tokens away, half of them before `prepare` and half after. The last line
is JSON: megabytes a second of both, their ratio, the peak memory of a worker and of the process
that hands out the work.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from weft import recipe as R
from weft.data.reading.files import read_blocks
from weft.data.tokenizing.tokenizer import Tokenizer
from weft.data.tokenizing.train_tokenizer import fit_tokenizer

from . import command, receipt

TOGETHER = 1000  # documents in one call of the bare library
ALONE = """
import json, resource, sys, time
from weft.data.preparing.prepare import prepare
from weft.support.values import from_json
began = time.perf_counter()
prepare(from_json(sys.argv[1]), sys.argv[2])
seconds = time.perf_counter() - began
own = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
print(json.dumps([seconds, own / 1e3, children / 1e3]))
"""  # a process of its own: a child's peak begins at its parent's, and ours holds the text


def zipfian(characters: int, seed: int = 0) -> str:
    """Paragraphs of made-up words, the n-th as common as 1 / n."""
    draw = np.random.default_rng(seed)
    letters = np.array(list("etaoinshrdlucmfw"))
    words = ["".join(letters[draw.integers(0, 16, size)]) for size in draw.integers(2, 10, 30_000)]
    share = 1 / np.arange(1, len(words) + 1)
    chosen = draw.choice(len(words), characters // 6, p=share / share.sum())
    lines = [" ".join(words[i] for i in chosen[at : at + 100]) for at in range(0, len(chosen), 100)]
    return "\n\n".join(lines)


def bare(tokenizer: Tokenizer, documents: list[str], megabytes: float) -> tuple[float, float]:
    """Megabytes and seconds."""
    groups = [documents[at : at + TOGETHER] for at in range(0, len(documents), TOGETHER)]
    size = sum(len(text.encode()) for text in documents)
    done = 0
    began = time.perf_counter()
    while done < megabytes * 1e6:
        for group in groups:
            tokenizer.inner.encode_batch_fast(group, add_special_tokens=False)
        done += size
    return done / 1e6, time.perf_counter() - began


def measure(text: str, megabytes: float, folder: Path) -> dict[str, Any]:
    documents = [part for part in text.split("\n\n") if part.strip()]
    tokenizer = fit_tokenizer(R.ByteBPE(vocab_size=8000), lambda: documents)
    tokenizer.save(folder / "tokenizer.json")
    with open(folder / "text.txt", "w", encoding="utf-8") as out:
        while out.tell() < megabytes * 1e6:
            out.write("\n\n".join(documents) + "\n\n")
    size = (folder / "text.txt").stat().st_size / 1e6
    data = R.Data(
        rows=R.Documents(),
        train=R.Source(paths=(str(folder / "text.txt"),), format="text"),
        tokenizer=R.TokenizerFile(path=str(folder / "tokenizer.json")),
    )
    before = bare(tokenizer, documents, megabytes / 2)
    made = folder / "prepared"
    run = subprocess.run(
        [sys.executable, "-c", ALONE, R.to_json(data), str(made)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    seconds, parent, worker = json.loads(run.stdout)
    after = bare(tokenizer, documents, megabytes / 2)
    alone = (before[0] + after[0]) / (before[1] + after[1])
    shards = json.loads((made / "train" / "index.json").read_text())["shards"]
    # the largest worker
    return {
        "megabytes": round(size),
        "tokens": sum(shard["tokens"] for shard in shards),
        "cores": len(os.sched_getaffinity(0)),
        "bare MB/s": round(alone, 2),
        "prepare MB/s": round(size / seconds, 2),
        "ratio": round(size / seconds / alone, 3),
        "bare before and after": [round(mega / took, 2) for mega, took in (before, after)],
        "worker's memory MB": round(worker),
        "parent's memory MB": round(parent),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=float, default=1000)
    parser.add_argument("--text", help="a file to repeat")
    parser.add_argument("--receipt")
    args = parser.parse_args()
    began = time.perf_counter()
    text = b"".join(read_blocks(args.text)).decode() if args.text else zipfian(10_000_000)
    with tempfile.TemporaryDirectory() as folder:
        found = measure(text, args.megabytes, Path(folder))
    for name, held in found.items():
        print(f"{name:>24}  {held}", file=sys.stderr)
    if args.receipt:
        receipt.write(args.receipt, found, time.perf_counter() - began)
    print(json.dumps(found))


if __name__ == "__main__":
    command.run(main)
