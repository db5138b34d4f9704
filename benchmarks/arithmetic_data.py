"""Generate the training text of recipes/gpt_arithmetic.py: solved problems of the ten arithmetic
tasks, several problems of one task per document.

    python -m benchmarks.arithmetic_data arithmetic [--count 200000] [--seed 0]

Writes train.jsonl.gz, valid.jsonl.gz and tokenizer.json there. No problem of valid.jsonl.gz or of
an evaluation is in train.jsonl.gz.
"""

import argparse
import gzip
import json
from pathlib import Path

from rich.progress import track

from weft.evaluation.arithmetic import documents, tokenizer

from . import command


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument(
        "--count",
        type=int,
        default=200_000,
        help="documents to train on; a four-hundredth as many to validate",
    )
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "tokenizer.json").write_text(tokenizer(), encoding="utf-8")
    for name, count, held in (
        ("train", given.count, False),
        ("valid", max(1, given.count // 400), True),
    ):
        lines = "".join(
            json.dumps({"text": text}) + "\n"
            for text in track(documents(count, given.seed, held), name, count)
        )
        (given.out / f"{name}.jsonl.gz").write_bytes(gzip.compress(lines.encode(), mtime=0))


if __name__ == "__main__":
    command.run(main)
