"""Measure the time and page size of `weft look` without loading: BERT base (12 layers, 12 heads) on
512 tokens.

    python -m benchmarks.look [--repeats 5] [--receipt docs/results/look.json]

The weights are random, so that all of them attend widely: the page of such maps compresses least.
The least of all repeats counts; processor time is that of all threads, which a busy machine changes
little. Exit code 1 if it takes 3 s or more, or the page has 10 MB or more.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import torch

import weft
from weft import recipe as R
from weft.data.tokenizing.train_tokenizer import fit_tokenizer
from weft.inference.look import look
from weft.inference.open_model import OpenModel
from weft.observe.page import page_html

from . import receipt

TOKENS = 512
SECONDS = 3.0
BYTES = 10_000_000
WORDS = [
    "the",
    "quick",
    "brown",
    "fox",
    "jumps",
    "over",
    "a",
    "lazy",
    "dog",
    "while",
    "seven",
    "wizards",
    "box",
]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--receipt", metavar="FILE")
    given = parser.parse_args()
    began = time.perf_counter()
    tokenizer = fit_tokenizer(R.WordPiece(vocab_size=200), lambda: iter([" ".join(WORDS)] * 20))
    spec = weft.bert("base")
    model = OpenModel("BERT base", weft.build(spec).eval(), tokenizer, None, Path())
    count = TOKENS - 2  # [CLS] and [SEP]
    text = " ".join(WORDS[i % len(WORDS)] for i in range(count))
    seconds = []
    processor = []
    size = 0
    tokens = 0
    for _ in range(given.repeats):
        wall = time.perf_counter()
        busy = time.process_time()
        observation = look(model, text)
        size = len(page_html(observation).encode())
        seconds.append(time.perf_counter() - wall)
        processor.append(time.process_time() - busy)
        tokens = len(observation.panels[0].queries)
    found = {
        "tokens": tokens,
        "layers": len(observation.panels[0].maps),
        "heads": observation.panels[0].maps[0].shape[0],
        "threads": torch.get_num_threads(),
        "seconds": round(min(seconds), 2),
        "processor_seconds": round(min(processor), 2),
        "page_bytes": size,
    }
    print(json.dumps(found))
    if given.receipt:
        receipt.write(given.receipt, found, time.perf_counter() - began)
    return int(found["seconds"] >= SECONDS or size >= BYTES)


if __name__ == "__main__":
    sys.exit(main())
